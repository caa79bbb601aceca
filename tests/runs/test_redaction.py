# ruff: noqa: RUF001  (letters that only look like ours are what this is about)
"""What looks like a secret is gone, wherever it stands; everything else stays as it was."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest_django.fixtures import Settings

from runs import keyring, redaction, secret_forms
from runs.redaction import also, redact

CANARY = "canary7Canary7"
# Written by hand: a form as it stands in a text, and what of it must not be left.
FORMS = {
    "our token": (f"als_01234567_{'f' * 64}_89abcdef", "ffff"),
    "github": (f"ghp_{CANARY * 3}", CANARY),
    "github, new": (f"github_pat_{CANARY * 3}", CANARY),
    "gitlab": (f"glpat-{CANARY * 2}", CANARY),
    "stripe": (f"sk_live_{CANARY}", CANARY),
    "webhook secret": (f"whsec_{CANARY}", CANARY),
    "openai": (f"sk-proj-{CANARY * 2}", CANARY),
    "aws": ("AKIACANARY7CANARY7AB", "CANARY7"),
    "google": (f"AIza{(CANARY * 3)[:35]}", CANARY),
    "slack": (f"xoxb-1234-{CANARY}", CANARY),
    "slack's address": (f"https://hooks.slack.com/services/T0/B0/{CANARY * 2}", CANARY),
    "sendgrid": (f"SG.{CANARY * 2}.{CANARY * 2}", CANARY),
    "npm": (f"npm_{(CANARY * 3)[:36]}", CANARY),
    "jwt": (f"eyJhbGciOiJI.eyJzdWIiOiJj.{CANARY}", CANARY),
    "private key": (f"-----BEGIN RSA PRIVATE KEY-----\n{CANARY}\n-----END RSA PRIVATE KEY-----", CANARY),
    "private key, cut off": (f"-----BEGIN PRIVATE KEY-----\n{CANARY}", CANARY),
    "authorization header": (f"Authorization: Bearer {CANARY}", CANARY),
    "authorization, quoted": (f"{{'Authorization': 'Bearer {CANARY}'}}", CANARY),
    "authorization, no scheme": (f"authorization: {CANARY}", CANARY),
    "proxy header": (f"Proxy-Authorization: Basic {CANARY}", CANARY),
    "bearer alone": (f"bearer  {CANARY}", CANARY),
    "basic alone": ("Basic Y2FuYXJ5OmNhbmFyeQ==", "Y2Fu"),
    "cookie": (f"Cookie: theme=dark; sid={CANARY}", CANARY),
    "set-cookie": (f"Set-Cookie: sid={CANARY}; Path=/", CANARY),
    "userinfo": (f"https://bob:{CANARY}@example.org/x", CANARY),
    "userinfo with a sign": (f"postgres://bob:a@{CANARY}@db/x", CANARY),
    "a token as user": (f"https://{CANARY}99@example.org", CANARY),
    "query": (f"https://example.org/?page=2&access_token={CANARY}&x=1", CANARY),
    "query, signed": (f"https://example.org/?X-Amz-Signature={CANARY}", CANARY),
    "query, encoded": (f"https://example.org/?pass%77ord={CANARY}", CANARY),
    "query, a key": (f"https://example.org/?key={CANARY}99", CANARY),
    "password=": (f"password={CANARY}", CANARY),
    "capitals": (f"DB_PASSWORD={CANARY}", CANARY),
    "camels": (f"clientSecret: {CANARY}", CANARY),
    "json in a text": (f'{{"api_key": "{CANARY} {CANARY}"}}', CANARY),
    "json in json": (f'{{\\"api-key\\": \\"{CANARY}\\"}}', CANARY),
    "a quote inside": (f'password="a\\"{CANARY}"', CANARY),
    "a flag": (f"mysql --password {CANARY} -u root", CANARY),
    "yaml": (f"token: {CANARY}", CANARY),
    "card": ("4242424242424242", "42424242"),
    "card in groups": ("4242 4242 4242 4242", "4242"),
    "card with lines": ("5555-5555-5555-4444", "5555"),
    "amex": ("3782 822463 10005", "822463"),
    "wide letters": (f"ｐａｓｓｗｏｒｄ＝{CANARY}", CANARY),
    "wide digits": ("４２４２４２４２４２４２４２４２", "４２４２"),
    "arabic digits": ("٤٢٤٢٤٢٤٢٤٢٤٢٤٢٤٢", "٤٢٤٢"),
    "an invisible letter": (f"ghp\u200b_{CANARY * 3}", CANARY),
    "a soft hyphen": (f"pass\u00adword={CANARY}", CANARY),
}
ORDINARY = [
    "Refund order 1234 (EUR 12.00) for the customer of Thursday",
    "task-management-of-something-that-is-long-enough",
    "disk_abcdefghijklmnopqrstuvwxyz0123456789",
    "run_0193f1d7c0de7abc8def0123456789ab",
    "550e8400-e29b-41d4-a716-446655440000",
    "4242424242424241",  # Luhn says no
    "1764491338123456",  # microseconds since 1970
    "Basic understanding of tokens, and the bearer standardized it",
    "The secret: it is raining. Token: see below. Cookie: with milk",
    "max_tokens=12, token=null, password={body.password}, secret=***",
    "ssh://git@example.org/x.git https://example.org/?page=2&state=open&key=order-7",
    '{"amount": 100, "ok": true, "note": "ä, 日本, …"}',
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "",
]
AROUND = st.text(st.characters(codec="utf-8"), max_size=30)
BETWEEN = st.sampled_from([" ", "\n", "\t", ", ", " (", "\n> "])


@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_removed_and_nothing_beside_it(form: str) -> None:
    text, canary = FORMS[form]
    assert canary in text
    clean = redact(f"before it {text}\nafter it")
    assert canary not in clean
    assert redaction.MARKER.search(clean)
    assert clean.startswith("before it ")
    assert clean.endswith("\nafter it") or "cut off" in form
    assert redact(clean) == clean


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_stays(text: str) -> None:
    assert redact(text) == text
    assert not redaction.holds_secret({"note": [text]})


@given(AROUND, BETWEEN, st.sampled_from(sorted(FORMS)), BETWEEN, AROUND)
def test_a_secret_is_gone_whatever_stands_around_it(
    before: str, gap: str, form: str, then: str, behind: str
) -> None:
    text, canary = FORMS[form]
    clean = redact(before + gap + text + then + behind)
    assert canary not in clean.replace(before, "").replace(behind, "") or canary in before + behind
    assert redact(clean) == clean


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | AROUND,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(AROUND, inner, max_size=3),
    max_leaves=8,
)


@given(json_values, st.sampled_from(sorted(FORMS)), st.integers(0, 3))
def test_a_secret_is_gone_at_any_depth_of_json_also_as_a_name(value: Any, form: str, how: int) -> None:
    text, canary = FORMS[form]
    inner: Any = [[text], {text: value}, {"note": [value, {"x": text}]}, {"a": {"b": {"c": text}}}][how]
    clean = redact({"first": value, "then": inner})
    assert canary not in json.dumps(clean["then"], ensure_ascii=False)
    assert redact(clean) == clean


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Nd"], exclude_characters="=:@-")))
def test_text_without_a_sign_of_a_secret_is_unchanged(text: str) -> None:
    assert redact(text) == text or secret_forms.TOKENS.search(text)


@given(st.text(max_size=200))
def test_redacting_twice_is_redacting_once(text: str) -> None:
    once = redact(text)
    assert redact(once) == once
    assert redact(text.encode("utf-8", "surrogatepass")) is not None


NAMES = [
    "password",
    "Client-Secret",
    "X-API-Key",
    "accessToken",
    "PIN",
    "ｔｏｋｅｎ",
    "card_number",
    "Set-Cookie",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", ["short", 1234, ["a", "b"], {"deep": {"er": "x"}}, 12.5])
def test_a_field_that_sounds_secret_holds_nothing(name: str, value: Any) -> None:
    clean = redact({"a": [{name: value, "amount": 5}]})
    assert re.fullmatch(r"\[redacted field [0-9a-f]{8}\]", clean["a"][0][name])
    assert clean["a"][0]["amount"] == 5
    assert redact(clean) == clean


def test_what_is_no_secret_stays_under_such_a_name() -> None:
    kept = {"token": "tok_" + "0" * 32, "password": None, "secret": False, "tokens_in": 7, "pin": ""}
    assert redact(kept) == kept


def test_a_workspace_adds_names_and_can_take_none_away() -> None:
    value = {"Kunden-Nummer": "K-1", "password": "x"}
    assert redact(value)["Kunden-Nummer"] == "K-1"
    with also(["kundennummer"]):
        assert "K-1" not in str(redact(value))
        assert "K-1" not in redact("kunden_nummer=K-1 x")
    with also([]):
        assert redact(value)["password"] != "x"


def test_equal_secrets_are_recognised_and_other_installations_can_not_guess_them(
    settings: Settings, tmp_path: Path
) -> None:
    ours = redact({"password": "hunter2", "x": "password=hunter2"})
    digests = set(re.findall(r"([0-9a-f]{8})\]", str(ours)))
    assert len(digests) == 1
    assert redact("Bearer abc123def") == "Bearer " + redact({"token": "abc123def"})["token"].replace(
        "field", "authorization"
    )
    keyring.make(tmp_path / keyring.REDACTION)
    settings.ALLSTOP_KEYS = tmp_path
    assert digests.isdisjoint(re.findall(r"([0-9a-f]{8})\]", str(redact("password=hunter2"))))


def test_without_a_key_secrets_are_removed_all_the_same(settings: Settings, tmp_path: Path) -> None:
    settings.ALLSTOP_KEYS = tmp_path
    assert redact("password=hunter2") == "password=[redacted password unkeyed]"
    assert redact(redact("password=hunter2")) == "password=[redacted password unkeyed]"


def test_numbers_and_bytes_and_headers() -> None:
    assert redact(4242424242424242) == redact("4242424242424242")
    assert redact([1, 4242424242424241, 2.5, True]) == [1, 4242424242424241, 2.5, True]
    assert CANARY.encode() not in redact(f"password={CANARY}".encode() + b"\xff\xfe")
    assert redact(b"\xff\xfe\x00") == b"\xff\xfe\x00"
    fields = {"X-Api-Key": CANARY, "Accept": "text/html", "Referer": f"https://x/?token={CANARY}"}
    clean = redaction.headers(fields)
    assert clean["Accept"] == "text/html"
    assert CANARY not in str(clean)


# Time grows with the length: whatever is scanned is passed over, or scanned a bounded number of times. ----

SIZE = 256 * 1024
PIECES = [
    *("eyJ-", "eyJaaaaaaaa.", 'password="', "password='\\\"", "token:", "ghp_", "://a:", "4242-", "4"),
    *("-----BEGIN PRIVATE KEY", '"', "\\", "bearer ", "a", "password=  ", "--password ", "a.SG.", "ｐ="),
    *("password=...", "password={", "[redacted x 00000000]", "cookie:=", "digest ", "a=b&token=", "%3d"),
]


class Counted:
    """A pattern that counts how many characters its calls pass over."""

    def __init__(self, pattern: re.Pattern[str], total: list[int]) -> None:
        self.pattern, self.total = pattern, total

    def _note(self, begin: int, found: re.Match[str] | None, text: str) -> re.Match[str] | None:
        self.total[0] += 1 + (found.end() if found else len(text)) - begin
        return found

    def search(self, text: str, begin: int = 0) -> re.Match[str] | None:
        return self._note(begin, self.pattern.search(text, begin), text)

    def match(self, text: str, begin: int = 0) -> re.Match[str] | None:
        found = self.pattern.match(text, begin)
        self.total[0] += 1 + (found.end() - begin if found else 0)
        return found


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    total = [0]
    for name in ("ASSIGNED", "FLAG"):
        monkeypatch.setattr(secret_forms, name, Counted(getattr(secret_forms, name), total))
    for name in ("REST", "QUOTED"):
        counted = {sign: Counted(form, total) for sign, form in getattr(secret_forms, name).items()}
        monkeypatch.setattr(secret_forms, name, counted)
    return total


@pytest.mark.parametrize("piece", PIECES)
def test_a_hostile_text_is_passed_over_a_few_times_at_most(passed: list[int], piece: str) -> None:
    text = (piece * (SIZE // len(piece) + 1))[:SIZE]
    clean = redact(text)
    assert passed[0] <= 6 * SIZE
    assert len(clean) <= 10 * SIZE


def _repeats(part: Any, inside: bool = False) -> Iterator[bool]:
    """For each unlimited repeat of a parsed pattern, whether it stands inside another one."""
    for code, told in part:
        unlimited = str(code) in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT") and told[1] > 1_000
        if unlimited:
            yield inside
        for inner in told if isinstance(told, tuple | list) else [told]:
            parts = inner if isinstance(inner, list) else [inner]
            for one in parts:
                if type(one).__name__ == "SubPattern":
                    yield from _repeats(one, inside or unlimited)


def test_no_form_repeats_a_repeat() -> None:
    found = [one for one in vars(secret_forms).values() if isinstance(one, re.Pattern)]
    found += [*secret_forms.REST.values(), *secret_forms.QUOTED.values()]
    inside: Any = re
    parse = inside._parser.parse
    assert len(found) > 12
    assert not any(any(_repeats(parse(one.pattern, one.flags))) for one in found)
    assert any(_repeats(parse("(a+)+")))  # the control


PAIRED: list[Any] = [
    {"name": "X-Api-Key", "value": "hunter2-and-more"},
    {"request": {"headers": [{"key": "Cookie", "value": "sid=hunter2-and-more"}]}},
    {"headers": [["Accept", "text/html"], ["X-Api-Key", "hunter2-and-more"]]},
    {"env": [("DB_PASSWORD", "hunter2-and-more")]},
    "next=1;password%3Dhunter2-and-more",
    "AccountKey=hunter2-and-more;EndpointSuffix=x",
]


@pytest.mark.parametrize("value", PAIRED)
def test_a_name_beside_its_value_tells_as_much_as_one_in_front_of_it(value: Any) -> None:
    once = redact(value)
    assert "hunter2" not in json.dumps(once)
    assert redact(once) == once


def test_pairs_and_values_without_such_a_name_stay() -> None:
    for value in (
        {"name": "X-Request-Id", "value": "hunter2-and-more"},
        {"name": "pin", "value": 3},
        ["password", "email"],  # names of fields are no fields
        {"pairs": [["from", "to"], ["a", "b"]]},
        [["token", "email", "name"]],
    ):
        assert redact(value) == value
