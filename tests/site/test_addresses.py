"""docs/site/addresses.py: where the site says the course is."""

from docs.site.addresses import URLS, of_course, of_file

FORK = {"Repository": "https://github.com/school/copy", "Issues": "https://tracker.school/copy"}
ELSEWHERE = {
    "Repository": "https://code.school/copy",
    "Issues": "https://code.school/copy/-/issues",
}


def test_every_address_is_made_from_those_of_pyproject():
    found = [*of_course(FORK).values(), *of_file("notebooks/02.ipynb", "02", FORK).values()]
    assert len(found) == 6 and all(one.startswith(tuple(FORK.values())) for one in found)
    assert URLS["Repository"] in of_course().values()


def test_what_only_github_has_is_left_out_for_another_host():
    assert list(of_course(ELSEWHERE).values()) == list(ELSEWHERE.values())
    found = of_file("notebooks/02.ipynb", "02", ELSEWHERE)
    assert found == {"Report an error": ELSEWHERE["Issues"]}


def test_without_an_address_nothing_is_promised():
    assert of_course({}) == {} and of_file("notebooks/02.ipynb", "02", {}) == {}


def test_a_report_begins_with_the_title_of_the_page():
    urls = {"Repository": "https://github.com/a/b", "Issues": "https://github.com/a/b/issues"}
    report = of_file("notebooks/02.ipynb", "02 · Masking", urls)["Report an error"]
    assert report == "https://github.com/a/b/issues/new?title=02%20%C2%B7%20Masking%3A%20"
