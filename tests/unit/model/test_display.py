"""HTML for notebooks is escaped and fits one screen."""

from __future__ import annotations

from widen.model.display import html_table, shorten


def test_values_are_escaped() -> None:
    assert html_table("a<b", ["x"], [["<script>"]]) == (
        "<p><b>a&lt;b</b></p><table><tr><th>x</th></tr><tr><td>&lt;script&gt;</td></tr></table>"
    )


def test_rows_past_a_screen_are_an_ellipsis() -> None:
    text = html_table("t", ["n"], ([n] for n in range(100)))
    assert (text.count("<td>"), text.endswith("</table><p>…</p>")) == (20, True)
    assert "…" not in html_table("t", ["n"], ([n] for n in range(20)))


def test_long_texts_are_cut() -> None:
    assert shorten("a" * 100) == "a" * 100
    assert shorten("a" * 101) == "a" * 99 + "…"
