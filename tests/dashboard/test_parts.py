"""The template parts: words beside every mark, and no stranger's markup."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.template import Context, Template
from django.test import RequestFactory

from dashboard import words

NOON = datetime(2026, 11, 27, 15, 2, 13, 412_900, tzinfo=UTC)


def render(source: str, **facts: object) -> str:
    return Template("{% load allstop %}" + source).render(Context(facts))


def test_a_chip_holds_icon_and_word() -> None:
    html = render("{% chip term %}", term=words.RUN["CANCELLING"])
    assert 'class="st st-stopping"' in html
    assert "#st-stopping" in html
    assert html.endswith("Stopping</span>")


def test_a_time_is_written_in_utc_with_its_day_when_that_differs() -> None:
    assert ">15:02:13.412<" in render("{% moment at 'ms' %}", at=NOON)
    assert ">15:02:13<" in render("{% moment at 's' now %}", at=NOON, now=NOON)
    tomorrow = NOON + timedelta(days=1)
    assert ">27 Nov 15:02:13<" in render("{% moment at 's' now %}", at=NOON, now=tomorrow)
    assert 'class="nil"' in render("{% moment none %}", none=None)


def test_two_versions_stand_side_by_side_and_a_missing_one_is_a_dash() -> None:
    assert "v3" in render("{% versions 3 4 %}")
    assert "v\N{EN DASH}" in render("{% versions none 4 %}", none=None)


def test_a_strip_carries_its_text_for_those_who_do_not_see_it() -> None:
    html = render(
        "{% strip marks label %}", marks=["known", "partial", "unknown"], label="2 known, 1 unknown"
    )
    assert 'role="img" aria-label="2 known, 1 unknown"' in html
    assert html.count("<rect") == 3
    assert html.count("m-half") == 1


def test_a_strip_of_a_thousand_effects_draws_two_dozen_and_counts_all_in_words() -> None:
    html = render("{% strip marks label %}", marks=["known"] * 1000, label="1000 known")
    assert html.count("<rect") == 24
    assert "1000 known" in html


def test_an_evidence_link_points_at_its_line() -> None:
    link = '<a class="ev" href="/runs/run_1/evidence?at=204#e-204">e-204</a>'
    assert render("{% ev 204 'run_1' %}") == link
    assert render("{% ev none 'run_1' %}", none=None) == ""


def test_markup_in_a_name_is_shown_not_obeyed() -> None:
    html = render("{{ name|clean }}", name="<img src=x onerror=alert(1)>\u202e")
    assert html == "&lt;img src=x onerror=alert(1)&gt;"


def test_the_theme_comes_from_the_cookie_and_only_from_known_words() -> None:
    request = RequestFactory().get("/")
    for cookie, attribute in {"dark": ' data-theme="dark"', '"><script>': "", "": ""}.items():
        request.COOKIES["theme"] = cookie
        assert render("{% theme %}", request=request) == attribute


def test_a_strip_of_many_marks_keeps_the_share_of_each_kind_and_leaves_out_none() -> None:
    many = ["known"] * 9_000 + ["unknown"] * 3_000 + ["partial"]
    html = render("{% strip marks label %}", marks=many, label="said")
    assert (html.count("m-known"), html.count("m-unknown"), html.count("m-partial")) == (18, 5, 1)
    assert render("{% strip marks label most=2 %}", marks=["known", "none"], label="").count("<rect") == 2
