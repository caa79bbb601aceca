"""Taking secrets out of what is to be kept or shown: by pattern, and by the name of the field.

What is removed becomes `[redacted <rule> <8 hex>]`: the first digits of an HMAC-SHA-256 of the secret under
the installation's `redaction.key`, so that two equal secrets can be recognised and a short one can't be
guessed from its digest. Redacting again changes nothing. Time grows with the length of the text, whatever it
holds: no expression begins a second scan inside a run that it has scanned before.

It knows forms, not meanings: a secret that looks like a word is found by its field's name or not at all.
"""

from __future__ import annotations

import hmac
import json
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import sha256
from typing import Any, NamedTuple
from urllib.parse import unquote

from . import keyring
from . import secret_forms as forms
from .secret_forms import LOOKS_RANDOM, is_card, normal, sounds_secret

MARKER = re.compile(r"\[redacted [a-z-]{1,20} (?:[0-9a-f]{8}|unkeyed)\]")
OWN_ID = re.compile(r"[a-z]{2,4}_[0-9a-f]{32}")
MASK = "\0"  # stands for a marker while a text is searched: part of no secret
QUOTED_MOST = 16_384  # how far the end of a quoted value is looked for

_also: ContextVar[frozenset[str]] = ContextVar("also", default=frozenset())


class Span(NamedTuple):
    """A secret in a text: where it begins and ends, and the rule that found it."""

    begin: int
    end: int
    rule: str


@contextmanager
def also(names: Iterable[str]) -> Iterator[None]:
    """Have these field names count as secret, too, within this block. Names can only be added."""
    before = _also.set(_also.get() | {normal(name) for name in names} - {""})
    try:
        yield
    finally:
        _also.reset(before)


def use(names: Iterable[str]) -> None:
    """As `also`, until this context ends or another `use` in it."""
    _also.set(frozenset(normal(name) for name in names) - {""})


def redact(value: Any) -> Any:
    """The same value without its secrets: JSON of any depth, text or bytes. What has none is unchanged."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, bytes):
        return text(value.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
    if isinstance(value, Mapping | list | tuple):
        return _json(value)
    return _number(value)


def headers(fields: Mapping[str, str]) -> dict[str, str]:
    """Header fields without the values of those that carry secrets."""
    return {name: _member(name, value) for name, value in fields.items()}


def holds_secret(value: Any) -> bool:
    """Whether `redact` would change it."""
    return bool(redact(value) != value)


def is_redacted(value: Any) -> bool:
    """Whether a text holds a marker: something that was there is not there any more."""
    return isinstance(value, str) and MARKER.search(value) is not None


def marker(rule: str, secret: str) -> str:
    """What stands in the place of a secret."""
    return f"[redacted {rule} {keyed(secret)}]"


def keyed(secret: str) -> str:
    """The first 8 hex digits of its HMAC; `unkeyed` where no key can be read: it is removed all the same."""
    try:
        key = keyring.read(keyring.REDACTION)
    except keyring.KeyUnreadable:
        return "unkeyed"
    return hmac.new(key, secret.encode("utf-8", "surrogatepass"), sha256).hexdigest()[:8]


# text ---------------------------------------------------------------------------------------------


# Short texts without a secret: words, ids and names that come again and again. None with one is remembered.
_clean: set[str] = set()
SHORT, REMEMBERED = 64, 8_192


def text(value: str) -> str:
    """A text without its secrets."""
    if value in _clean and not _also.get():
        return value
    clean = _without(value)
    if clean is value and len(value) <= SHORT and not _also.get():
        if len(_clean) >= REMEMBERED:
            _clean.clear()
        _clean.add(value)
    return clean


def _without(value: str) -> str:
    parts, at = [], 0
    for begin, end, rule, secret in _removed(value):
        parts += [value[at:begin], marker(rule, secret)]
        at = end
    return "".join([*parts, value[at:]]) if parts else value


def _removed(value: str) -> Iterator[tuple[int, int, str, str]]:
    """Each secret of a text: where it stands, its rule, and the very secret (`Bearer x` is as `x`)."""
    masked = MARKER.sub(lambda found: MASK * len(found[0]), value) if "[redacted " in value else value
    searched, places = folded(masked)
    for span in united(spans(searched)):
        begin, end = span.begin, span.end
        secret = searched[begin:end]
        if places is not None:
            begin, end = places[begin], places[end - 1] + 1
        yield begin, end, span.rule, forms.digits_of(secret) if span.rule == "card" else _bare(secret)


def _bare(secret: str) -> str:
    """`Bearer x` is the secret x."""
    return secret[found.end() :] if (found := forms.SCHEME.match(secret)) else secret


def folded(value: str) -> tuple[str, list[int] | None]:
    """A text as it is searched, and from where in the original each of its characters comes (None: as is).

    Wide letters and other people's digits are read as ours, and what the eye can't see is passed over.
    """
    if value.isascii() or (unicodedata.is_normalized("NFKC", value) and not forms.FOLDS.search(value)):
        return value, None
    signs: list[str] = []
    places: list[int] = []
    for place, sign in enumerate(value):
        for one in _plain(sign):
            signs.append(one)
            places.append(place)
    return "".join(signs), places


def _plain(sign: str) -> str:
    if sign.isascii():
        return sign
    if unicodedata.category(sign) in ("Cf", "Mn"):
        return ""
    digit = unicodedata.decimal(sign, None)
    return str(digit) if digit is not None else unicodedata.normalize("NFKC", sign)


def united(found: Iterable[Span]) -> list[Span]:
    """Spans in their order; those that overlap are one, under the name of the one that begins first."""
    whole: list[Span] = []
    for span in sorted(found, key=lambda one: (one.begin, -one.end)):
        if whole and span.begin < whole[-1].end:
            whole[-1] = whole[-1]._replace(end=max(span.end, whole[-1].end))
        else:
            whole.append(span)
    return whole


def spans(value: str) -> list[Span]:
    """Every secret that a form or a name tells, in no order. Each search passes over the text once."""
    found = [Span(*one.span(), "token") for one in forms.TOKENS.finditer(value)]
    found += [Span(*one.span(), "card") for one in forms.CARD.finditer(value) if is_card(one[0])]
    found += [_credential(one) for one in forms.CREDENTIALS.finditer(value) if _is_shown(one)]
    if "-----" in value:
        found += [Span(*one.span(), "private-key") for one in forms.PEM.finditer(value)]
    if "eyJ" in value:
        found += [_jwt(one) for one in forms.JWT.finditer(value) if "eyJ" in one["head"]]
    if "://" in value:
        users = forms.USERINFO.finditer(value)
        found += [Span(*one.span("user"), "userinfo") for one in users if _signs_in(one)]
    if "=" in value or ":" in value or "%3" in value:
        found += _assigned(value, forms.ASSIGNED)
    if "--" in value:
        found += _assigned(value, forms.FLAG)
    return found


def _is_shown(found: re.Match[str]) -> bool:
    """Whether a scheme is followed by a credential: prose has a bearer, too, but writes it small."""
    sure = found[0].startswith(("Bearer", "BEARER")) and len(found["bearer"]) >= 8
    return sure or LOOKS_RANDOM.search(found[0], 6) is not None


def _credential(found: re.Match[str]) -> Span:
    return Span(*found.span("bearer" if found["bearer"] else "basic"), "authorization")


def _jwt(found: re.Match[str]) -> Span:
    return Span(found.start() + found["head"].index("eyJ"), found.end(), "jwt")


def _signs_in(found: re.Match[str]) -> bool:
    """`user:password@`, or a lone token; a lone name such as git@ is none."""
    user = found["user"]
    return ":" in user or (len(user) >= 16 and LOOKS_RANDOM.search(user) is not None)


def _assigned(value: str, form: re.Pattern[str]) -> Iterator[Span]:
    """`name=value`, `name: value`, `"name": "value"`, `--name value` of names that sound secret."""
    place = 0
    while (found := form.search(value, place)) is not None:
        place = begin = found.end()
        if rule := _rule_of(value, found):
            end = _end_of(value, found, rule)
            if forms.NO_SECRET.fullmatch(value[begin:end].strip()) is None:
                yield Span(begin, end, rule)
            place = max(end, begin)


def _rule_of(value: str, found: re.Match[str]) -> str:
    """The rule under which what follows this name is a secret, or ""."""
    name = normal(unquote(found["name"]) if "%" in found["name"] else found["name"])
    if name in forms.HEADERS:
        return "cookie" if name.endswith("cookie") else "authorization"
    known = sounds_secret(name) or name in _also.get()
    if found.start() > 0 and value[found.start() - 1] in "?&":
        return "query" if known or name in forms.IN_QUERY or name in forms.PERHAPS_IN_QUERY else ""
    return "password" if known else ""


def _end_of(value: str, found: re.Match[str], rule: str) -> int:
    """Where the value that begins here ends; its beginning when it is none."""
    begin, quote = found.end(), found["open"]
    if len(quote) == 1:
        return _after(forms.QUOTED[quote], value, begin)
    if quote and (end := value.find(quote, begin, begin + QUOTED_MOST)) >= 0:
        return end
    end = _after(forms.REST[rule], value, begin)
    return end if _counts(value[begin:end], found, rule) else begin


def _after(form: re.Pattern[str], value: str, begin: int) -> int:
    run = form.match(value, begin)
    return run.end() if run else begin


def _counts(value: str, found: re.Match[str], rule: str) -> bool:
    """Whether a value without quotes is one: after a word that prose has, too, only what is no word is."""
    name, prose = normal(found["name"]), found["sign"].strip() == ":"
    if rule == "cookie" and prose:
        return "=" in value
    if rule == "query" and name in forms.PERHAPS_IN_QUERY:
        return len(value) >= 16 and LOOKS_RANDOM.search(value) is not None
    if rule == "password" and prose and name in forms.WEAK:
        return len(value) >= 8 and LOOKS_RANDOM.search(value) is not None
    return True


# JSON ---------------------------------------------------------------------------------------------


def _number(value: Any) -> Any:
    """A card's number is one as a number, too."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 10**13 and is_card(str(value)):
        return marker("card", str(value))
    return value


def _member(name: Any, value: Any) -> Any:
    """What is kept under a name: nothing when the name tells that it is a secret."""
    if isinstance(name, str) and is_secret_name(name) and _can_be_secret(value):
        return marker("field", _bare(value) if isinstance(value, str) else _as_text(value))
    return _leaf(value)


def is_secret_name(name: str) -> bool:
    """Whether a field of this name holds a secret, however it is spelled."""
    return _is_secret(normal(name)) or ("." in name and _is_secret(normal(name.rpartition(".")[2])))


def _is_secret(plain: str) -> bool:
    return plain in forms.HEADERS or sounds_secret(plain) or plain in _also.get()


def _can_be_secret(value: Any) -> bool:
    """Not yes, no or nothing; not one of our own ids; not what was removed already."""
    if value is None or isinstance(value, bool) or value in ("", [], {}):
        return False
    return not (isinstance(value, str) and (OWN_ID.fullmatch(value) or MARKER.fullmatch(value)))


def _as_text(value: Any) -> str:
    try:
        return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    except RecursionError:
        return "deep"


def _leaf(value: Any) -> Any:
    if isinstance(value, str):
        return text(value)
    return value if isinstance(value, Mapping | list | tuple) else _number(value)


def _json(value: Any) -> Any:
    """Containers of any depth, without recursion."""
    root: list[Any] = [value]
    todo: list[list[Any] | dict[Any, Any]] = [root]
    while todo:
        box = todo.pop()
        for place, one in list(_places(box)):
            if isinstance(one, Mapping):
                box[place] = inner = {_leaf(name): _member(name, item) for name, item in one.items()}
                todo.append(_named(inner))
            elif isinstance(one, list | tuple):
                box[place] = members = _pairs([_leaf(item) for item in one])
                todo.append(members)
    return root[0]


def _named(inner: dict[Any, Any]) -> dict[Any, Any]:
    """`{"name": "X-Api-Key", "value": "…"}` holds what `{"X-Api-Key": "…"}` does."""
    if isinstance(inner.get("value"), str):
        for name in forms.NAMED_BY:
            if isinstance(inner.get(name), str):
                inner["value"] = _member(inner[name], inner["value"])
    return inner


def _pairs(members: list[Any]) -> list[Any]:
    """And so does a list of pairs, `[["X-Api-Key", "…"], …]`: header fields as many libraries have them."""
    if not members or not all(_is_pair(one) for one in members):
        return members
    return [[name, _member(name, value)] for name, value in members]


def _is_pair(one: Any) -> bool:
    return isinstance(one, list | tuple) and len(one) == 2 and all(isinstance(part, str) for part in one)


def _places(box: list[Any] | dict[Any, Any]) -> Collection[tuple[Any, Any]]:
    return box.items() if isinstance(box, dict) else list(enumerate(box))
