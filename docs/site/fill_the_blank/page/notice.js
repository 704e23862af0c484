// A plain script: browsers refuse modules to a page opened as a file, and then only this one runs.
if (location.protocol === "file:") {
  const notice = document.getElementById("notice");
  notice.hidden = false;
  notice.textContent =
    "This page was opened as a file, and browsers do not let a file fetch its model. In its " +
    "folder run python3 -m http.server 8000 and then open http://localhost:8000/ here.";
  document.getElementById("status").textContent = "The model is not loaded.";
}
