// The log and the settings in a folder that was dropped on the page.

export const SETTINGS = /(^|\/)(config\.json|vocab\.txt)$/;
const LOGS = /(^|\/)(log(\.\d+)?\.jsonl|trainer_state\.json)$|\.csv$/;
const DEPTH = 3; // folders below the one that was dropped

/**
 * Collect [path, file] pairs. A file that was dropped by itself is taken whatever its name is.
 * @param {FileSystemEntry} entry a file or a folder.
 * @param {Array} found where the pairs are added.
 */
export async function collect(entry, found, depth = 0) {
  if (entry.isFile) {
    const path = entry.fullPath.slice(1);
    if (depth && !LOGS.test(path) && !SETTINGS.test(path)) return;
    const file = await new Promise((give, fail) => entry.file(give, fail));
    found.push([depth ? path : file.name, file]);
    return;
  }
  if (depth > DEPTH) return;
  const reader = entry.createReader();
  for (;;) {
    const entries = await new Promise((give, fail) => reader.readEntries(give, fail));
    if (!entries.length) return;
    for (const one of entries) await collect(one, found, depth + 1);
  }
}
