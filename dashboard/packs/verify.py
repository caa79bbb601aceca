"""Check an evidence pack or a signed statement of Allstop, without Allstop and without a network.

    python3 -I verify.py PACK.zip [--key KEY] [--statement FILE ...]
    python3 -I verify.py                 in a pack's unpacked folder
    python3 -I verify.py STATEMENT.json --key KEY
    python3 -I verify.py LINES.jsonl --key KEY

KEY is the installation's public key as you have it from somewhere else than this pack: its id (16 hex
digits), its 32 bytes in base64 or hex, or a file keys.json kept from before. Without it a pack can only
agree with itself. FILE is a statement that you kept: of a day, or of a report. Ends with 0 when everything
fits, with 1 when something does not; then it names the place.

Python 3.9 or later, its standard library, this one file.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import re
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field
from itertools import combinations
from typing import IO, Any, Optional, cast

LIMITS = """What no chain of hashes can show: what was never written down; and, before the first statement
that somebody else kept, a story that its owner wrote anew from its first line. A signature shows that a key
was used, not by whom. Keep statements, and the key, elsewhere than with those whom they are about."""
LINE_MOST, FILE_MOST, ALL_MOST = 1 << 24, 1 << 30, 1 << 32  # bytes
PAIRS_UP_TO = 64  # lines of a range of which each pair is tried the other way round

# --- Ed25519, as RFC 8032 section 5.1 has it; strictly: one encoding of each point and number, no point of
# small order. Slow and not in constant time, which is fine for checking what is public.

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
ROOT = pow(2, (P - 1) // 4, P)
Point = tuple[int, int, int, int]  # extended coordinates (X, Y, Z, T), x = X/Z, y = Y/Z, xy = T/Z


def x_of(y: int, sign: int) -> Optional[int]:
    if y >= P:
        return None
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * ROOT % P
    if (x * x - square) % P or (x == 0 and sign):
        return None
    return P - x if x & 1 != sign else x


def point_of(data: bytes) -> Optional[Point]:
    number = int.from_bytes(data, "little")
    y = number & ((1 << 255) - 1)
    x = x_of(y, number >> 255)
    return None if x is None else (x, y, 1, x * y % P)


def plus(p: Point, q: Point) -> Point:
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % P, (p[1] + p[0]) * (q[1] + q[0]) % P
    c, d = 2 * p[3] * q[3] * D % P, 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return (e * f % P, g * h % P, f * g % P, e * h % P)


def times(number: int, p: Point) -> Point:
    result: Point = (0, 1, 1, 0)
    while number:
        if number & 1:
            result = plus(result, p)
        p, number = plus(p, p), number >> 1
    return result


def same(p: Point, q: Point) -> bool:
    return (p[0] * q[2] - q[0] * p[2]) % P == 0 and (p[1] * q[2] - q[1] * p[2]) % P == 0


BASE = cast(Point, point_of((4 * pow(5, P - 2, P) % P).to_bytes(32, "little")))
NOTHING: Point = (0, 1, 1, 0)


def is_signed(public: bytes, message: bytes, signature: bytes) -> bool:
    """Whether it is this key's signature of this message."""
    if len(public) != 32 or len(signature) != 64:
        return False
    a, r = point_of(public), point_of(signature[:32])
    s = int.from_bytes(signature[32:], "little")
    if a is None or r is None or s >= ORDER or same(times(8, a), NOTHING) or same(times(8, r), NOTHING):
        return False
    k = int.from_bytes(hashlib.sha512(signature[:32] + public + message).digest(), "little") % ORDER
    return same(times(s, BASE), plus(r, times(k, a)))


# --- What is found ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Break:
    """A place that does not fit. `what`: edited, missing, reordered, body, seal, fork, older, report,
    attachment, file, signature, unsigned, key or form; `where`: the lines or the file."""

    what: str
    where: str
    says: str


@dataclass
class Verdict:
    """What was looked at. Intact: no break. `notes` are for people and change nothing."""

    subject: str = ""
    breaks: list[Break] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def intact(self) -> bool:
        return not self.breaks

    def add(self, what: str, where: str, says: str) -> None:
        self.breaks.append(Break(what, where, says))


class Unreadable(ValueError):
    """It is no pack and no statement, or too large to be one."""


def lines_named(first: int, last: int) -> str:
    return f"line {first}" if first == last else f"lines {first} to {last}"


def counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def sha256(data: Any) -> str:
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def parsed(data: Any, kind: type, where: str) -> Any:
    """JSON of this kind (dict, list). Raises Unreadable."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, kind):
        raise Unreadable(f"{where} is not what it should be")
    return value


# --- Statements and keys ------------------------------------------------------------------------------------


class Statement:
    """A statement as it left the installation: {"statement": text, "signature", "public"}."""

    def __init__(self, where: str, envelope: dict[str, Any]) -> None:
        self.where, self.text = where, text_in(envelope, "statement")
        self.public, self.signature = text_in(envelope, "public"), text_in(envelope, "signature")
        self.unsigned = text_in(envelope, "unsigned")
        self.told: dict[str, Any] = parsed(self.text, dict, where)
        if self.told.get("format") != "allstop.statement/1":
            raise Unreadable(f"{where} is no statement that this verifier knows")
        self.kind, self.key, self.at = (text_in(self.told, name) for name in ("kind", "key", "at"))
        self.installation = text_in(self.told, "installation")

    @property
    def heads(self) -> list[tuple[str, int, str]]:
        rows = self.told.get("streams")
        named = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
        return [(str(row.get("stream")), number_in(row, "upto_seq"), str(row.get("head"))) for row in named]

    @property
    def report(self) -> dict[str, Any]:
        return dict_in(self.told, "report")

    @property
    def is_genuine(self) -> bool:
        public = decoded(self.public)
        fits = sha256(public)[:16] == self.key
        return fits and is_signed(public, self.text.encode(), decoded(self.signature))


def text_in(rows: dict[str, Any], name: str) -> str:
    value = rows.get(name, "")
    return value if isinstance(value, str) and value.isprintable() else ""


def number_in(row: dict[str, Any], name: str) -> int:
    value = row.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def dict_in(row: dict[str, Any], name: str) -> dict[str, Any]:
    value = row.get(name)
    return value if isinstance(value, dict) else {}


def decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""


class Keys:
    """The public keys of an installation, and which of them hand over to each other."""

    def __init__(self, told: dict[str, Any], verdict: Verdict) -> None:
        rows = told.get("keys")
        self.rows = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
        self.installation = text_in(told, "installation")
        self.public = {str(row.get("id")): str(row.get("public")) for row in self.rows}
        self.links: list[tuple[str, str]] = []
        for number, row in enumerate(self.rows):
            self._look_at(row, number == 0, verdict)

    def _look_at(self, row: dict[str, Any], is_first: bool, verdict: Verdict) -> None:
        name = str(row.get("id"))
        if sha256(decoded(text_in(row, "public")))[:16] != name:
            verdict.add("key", f"keys.json, key {name}", "Its id is not that of its bytes.")
        handed = row.get("handover")
        before = self._handed_over(handed, name) if isinstance(handed, dict) else ""
        if before:
            self.links.append((before, name))
        elif handed:
            says = "Its hand-over is not signed by the key before it and by itself."
            verdict.add("key", f"keys.json, key {name}", says)
        elif not is_first:
            verdict.notes.append(f"Key {name} came without a hand-over; ask the installation why.")

    def _handed_over(self, handed: dict[str, Any], name: str) -> str:
        """The key that handed over to this one, by what both of them signed; "" when they did not."""
        public, text = self.public.get(name, ""), text_in(handed, "statement")
        told = parsed(text, dict, f"keys.json, key {name}")
        before = text_in(told, "key")
        if (told.get("kind"), told.get("next"), told.get("next_public")) != ("handover", name, public):
            return ""
        old, new = decoded(self.public.get(before, "")), decoded(public)
        genuine = sha256(old)[:16] == before and sha256(new)[:16] == name
        signed = genuine and is_signed(old, text.encode(), decoded(text_in(handed, "signature")))
        return (
            before if signed and is_signed(new, text.encode(), decoded(text_in(handed, "accepted"))) else ""
        )

    def led_to(self, given: set[str]) -> set[str]:
        """These keys and all that hand-overs lead to, from old to new and back: both sides signed."""
        reached = set(given)
        for _ in self.links:
            for link in self.links:
                if reached & set(link):
                    reached |= set(link)
        return reached


def key_ids(text: str) -> set[str]:
    """What a --key stands for: an id as it is; of a public key, or of those in a file, the whole digests."""
    if re.fullmatch(r"[0-9a-f]{16}", text):
        return {text}
    raw = bytes.fromhex(text) if re.fullmatch(r"[0-9a-fA-F]{64}", text) else decoded(text)
    if len(raw) == 32:
        return {sha256(raw)}
    try:
        with open(text, "rb") as file:
            rows = parsed(file.read(1 << 20), dict, text).get("keys")
    except OSError:
        raise Unreadable(f"{text} is no key and no file of keys") from None
    given = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    public = [raw for raw in (decoded(text_in(row, "public")) for row in given) if len(raw) == 32]
    if not public:  # else whoever gave it would have been asked for no key at all
        raise Unreadable(f"{text} holds no public key")
    return {sha256(raw) for raw in public}


class Trust:
    """Which keys count: those in the pack, and with --key only what it leads to.

    Whoever gave a whole key is not answered by another one of which the id alone is the same.
    """

    def __init__(self, keys: Optional[Keys], given: set[str]) -> None:
        self.keys, self.given = keys, {one[:16] for one in given}
        self.whole = {one[:16]: one for one in given if len(one) > 16}
        genuine = keys is None or all(self.is_it(*row) for row in keys.public.items())
        self.reached = set() if not genuine else keys.led_to(self.given) if keys and given else self.given

    def is_it(self, name: str, public: str) -> bool:
        return self.whole.get(name) in (None, sha256(decoded(public)))

    def judge(self, one: Statement, verdict: Verdict, unsigned_breaks: bool) -> None:
        if not one.signature:
            if unsigned_breaks or not one.unsigned:
                verdict.add("unsigned", one.where, one.unsigned or "It has no signature.")
            else:
                verdict.notes.append(f"{one.where}: {one.unsigned}")
        elif not one.is_genuine:
            verdict.add("signature", one.where, "It was changed, or its signature was.")
        elif self.given and not (one.key in self.reached and self.is_it(one.key, one.public)):
            says = f"Signed by key {one.key}, which is not the one you gave, and no hand-over leads to it."
            verdict.add("key", one.where, says)
        elif self.keys and (one.installation, one.key in self.keys.public) != (self.keys.installation, True):
            verdict.add("key", one.where, f"Signed by key {one.key}, which is not one of this installation.")


# --- Where it stands ----------------------------------------------------------------------------------------


class Pack:
    """The files of a pack, in a zip or a folder."""

    NAME = re.compile(
        r"[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*(/[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*)*"
    )

    def __init__(self, path: str) -> None:
        self.path, self.zip = path, None if os.path.isdir(path) else zipfile.ZipFile(path)
        self.listed = [info.filename for info in self.zip.infolist()] if self.zip else list(self._files())
        self.names = set(self.listed)
        if self.zip and (self.zip.comment or min(self._begins(), default=0)):
            raise Unreadable("before or behind its files stands something that it does not list")
        if self.zip and sum(info.file_size for info in self.zip.infolist()) > ALL_MOST:
            raise Unreadable("it is larger than any pack")

    def _begins(self) -> list[int]:
        assert self.zip is not None
        return [info.header_offset for info in self.zip.infolist()]

    def _files(self) -> Iterator[str]:
        for folder, _, files in os.walk(self.path):
            inside = os.path.relpath(folder, self.path).replace(os.sep, "/")
            yield from (name if inside == "." else f"{inside}/{name}" for name in sorted(files))

    def open(self, name: str) -> IO[bytes]:
        """Raises KeyError when there is no such file."""
        if name not in self.names or not self.NAME.fullmatch(name):
            raise KeyError(name)
        return self.zip.open(name) if self.zip else open(os.path.join(self.path, *name.split("/")), "rb")

    def read(self, name: str, most: int = FILE_MOST) -> bytes:
        with self.open(name) as file:
            data = file.read(most + 1)
        if len(data) > most:
            raise Unreadable(f"{name} is larger than it can be")
        return data

    def digest(self, name: str) -> str:
        text = hashlib.sha256()
        with self.open(name) as file:
            for part in iter(lambda: file.read(1 << 20), b""):
                text.update(part)
        return text.hexdigest()

    def rows(self, name: str) -> Iterator[dict[str, Any]]:
        """The objects of a file of JSON lines, one at a time."""
        with self.open(name) as file:
            for number, line in enumerate(iter(lambda: file.readline(LINE_MOST), b""), 1):
                yield parsed(line, dict, f"line {number} of {name}")


class Loose:
    """One stream in a single file: what it is; lines, and seals behind them; a statement at the end."""

    PARTS = {"about": "format", "lines.jsonl": "kind", "seals.jsonl": "head", "statement": "statement"}

    def __init__(self, path: str) -> None:
        self.path = path

    def digest(self) -> str:
        """SHA-256 of all lines but the last."""
        text, last = hashlib.sha256(), b""
        with open(self.path, "rb") as file:
            for line in iter(lambda: file.readline(LINE_MOST), b""):
                text.update(last)
                last = line
        return text.hexdigest()

    def rows(self, name: str) -> Iterator[dict[str, Any]]:
        with open(self.path, "rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(LINE_MOST), b""), 1):
                row = parsed(line, dict, f"line {number} of the file")
                if sum(part in row for part in self.PARTS.values()) != 1:
                    raise Unreadable(f"line {number} of the file is not what it should be")
                if self.PARTS[name] in row:
                    yield row


# --- The lines ----------------------------------------------------------------------------------------------

FIELDS = (
    *("stream", "seq", "at", "payload_digest", "kind", "actor", "boundary", "carried_version"),
    *("current_version", "ground", "stop_id", "step_id", "permit_id", "effect_key", "worker", "reported_at"),
)
KINDS = (str, int, type(None))
Row = dict[str, Any]


def chain(head: str, line: Row) -> str:
    """The next head: SHA-256 over the one before and each field with its length in front."""
    text = hashlib.sha256(b"\x00" + head.encode())
    for name in FIELDS:
        data = str(line[name]).encode("utf-8", "surrogatepass")
        text.update(len(data).to_bytes(8, "big") + data)
    return text.hexdigest()


class Lines:
    """Goes through the lines once, a seal's range at a time, and keeps what others are compared with."""

    def __init__(self, pack: Pack | Loose, stream: str, wanted: set[int], verdict: Verdict) -> None:
        self.stream, self.wanted, self.verdict = stream, wanted, verdict
        self.count = self.removed = self.last = self.sealed = 0
        self.heads: dict[int, set[str]] = {}
        self.issued: set[str] = set()  # digests of the bodies of lines that tell of an issued report
        self.attached: dict[str, str] = {}  # attachments that lines tell of, by id, with their digests
        self.unread = 0  # lines that told of one, whose body was removed
        self.rows = self._in_order(pack.rows("lines.jsonl"))
        self.ahead = next(self.rows, None)
        seals = [(number_in(row, "upto_seq"), text_in(row, "head")) for row in pack.rows("seals.jsonl")]
        self._go_through(sorted(seals))

    def _in_order(self, rows: Iterator[Row]) -> Iterator[Row]:
        for row in rows:
            row["seq"] = number_in(row, "seq")
            strange = [name for name in FIELDS if type(row.get(name, 0.5)) not in KINDS]
            if row["seq"] < 1 or strange or not isinstance(row.get("body"), (str, type(None))):
                raise Unreadable("lines.jsonl holds something that is no line of evidence")
            if row["stream"] != self.stream:
                self.verdict.add("edited", f"line {row['seq']}", "It is a line of another stream.")
            if row["seq"] <= self.last:
                says = f"It stands behind line {self.last} in the file."
                self.verdict.add("reordered", f"line {row['seq']}", says)
            self.last, self.count = max(self.last, row["seq"]), self.count + 1
            self._keep(row)
            yield row

    def _keep(self, row: Row) -> None:
        why = self._wrong_body(row)
        if why:
            self.verdict.add("body", f"line {row['seq']}", why)
        if row["kind"] == "report.issued":
            self.issued.add(row["payload_digest"])
        elif row["kind"] == "unknown.attached":
            told = parsed(row.get("body") or "{}", dict, f"the body of line {row['seq']}")
            self.attached[text_in(told, "attachment")] = text_in(told, "digest")
            self.unread += not told

    def _wrong_body(self, row: Row) -> str:
        if row.get("removed_at"):
            self.removed += 1
            return "It was removed, and stands here all the same." if row.get("body") else ""
        if row["payload_digest"] and row.get("body") is None:
            return "Its body is gone, and no rule says under which it was removed."
        body = row.get("body") or ""
        fits = (sha256(body) if body else "") == row["payload_digest"]
        return "" if fits else "Its body is not the one whose digest it holds."

    def _take(self, upto: Optional[int]) -> list[Row]:
        taken: list[Row] = []
        while self.ahead is not None and (upto is None or self.ahead["seq"] <= upto):
            taken.append({name: self.ahead[name] for name in FIELDS})
            self.ahead = next(self.rows, None)
        return sorted(taken, key=lambda row: int(row["seq"]))

    def _go_through(self, seals: list[tuple[int, str]]) -> None:
        head = ""
        for upto, sealed in seals:
            lines = self._take(upto)
            self._check(head, lines, upto, sealed)
            self.heads.setdefault(upto, set()).add(sealed)
            head, self.sealed = sealed, upto
        tail = self._take(None)
        self._gaps(tail, 0)
        self._follow(head, tail)

    def _check(self, head: str, lines: list[Row], upto: int, sealed: str) -> None:
        if self._gaps(lines, upto) or self._follow(head, lines) == sealed:
            return
        moved = other_order(head, lines, sealed)
        if moved:
            says = "They stand in another order than the one that was sealed."
            self.verdict.add("reordered", lines_named(moved[0], moved[-1]), says)
        else:
            says = f"They were changed, or the seal at line {upto} was: the chain does not lead to it."
            self.verdict.add("edited", lines_named(self.sealed + 1, upto), says)

    def _follow(self, head: str, lines: list[Row]) -> str:
        for line in lines:
            head = chain(head, line)
            if line["seq"] in self.wanted:
                self.heads.setdefault(line["seq"], set()).add(head)
        return head

    def _gaps(self, lines: list[Row], upto: int) -> bool:
        """Whether numbers are missing behind the last seal, up to the last line or `upto`."""
        expected, found = self.sealed + 1, False
        for seq in [*(line["seq"] for line in lines), max(upto, lines[-1]["seq"] if lines else 0) + 1]:
            if seq > expected:
                says = "Numbers are given without a gap; these are gone."
                self.verdict.add("missing", lines_named(expected, seq - 1), says)
                found = True
            expected = max(expected, seq + 1)
        return found


def other_order(head: str, lines: list[Row], sealed: str) -> list[int]:
    """The numbers whose contents changed places, if another order leads to the sealed head; else []."""
    for order in orders(lines):
        now = head
        for here, there in zip(lines, order):
            now = chain(now, {**there, "seq": here["seq"]})
        if now == sealed:
            return [here["seq"] for here, there in zip(lines, order) if here is not there]
    return []


def orders(lines: list[Row]) -> Iterator[list[Row]]:
    """By their times first; then, where they are few, each pair the other way round."""
    yield sorted(lines, key=lambda line: str(line["at"]))
    if len(lines) <= PAIRS_UP_TO:
        for one, two in combinations(range(len(lines)), 2):
            order = copy(lines)
            order[one], order[two] = order[two], order[one]
            yield order


# --- A pack -------------------------------------------------------------------------------------------------

NEEDED = ("pack.json", "keys.json", "statement.json", "lines.jsonl", "seals.jsonl", "attachments.jsonl")
INSIDE = ("reports/", "statements/", "attachments/")


class Version:
    """An issued version of the report in a pack, without its body."""

    def __init__(self, pack: Pack, row: Row) -> None:
        self.number, self.name = number_in(row, "version"), text_in(row, "json")
        data = pack.read(self.name)
        body = parsed(data, dict, self.name)
        self.digest, self.seal = sha256(data), dict_in(body, "seal")
        told = {"version": self.number, "digest": self.digest}
        self.issued = sha256(canonical({**told, "outcome": body.get("outcome"), "final": body.get("final")}))
        envelope = parsed(pack.read(text_in(row, "statement")), dict, text_in(row, "statement"))
        self.statement = Statement(text_in(row, "statement"), envelope)


class PackCheck:
    """One look at a pack, by its parts."""

    def __init__(self, pack: Pack, given: list[Statement], verdict: Verdict) -> None:
        self.pack, self.given, self.verdict = pack, given, verdict
        self.about: Row = parsed(pack.read("pack.json"), dict, "pack.json")
        if self.about.get("format") != "allstop.pack/1":
            raise Unreadable("it is of a format that this verifier does not know")
        self.run = text_in(self.about, "run")
        self.keys = Keys(parsed(pack.read("keys.json"), dict, "keys.json"), verdict)
        self.own = Statement("statement.json", parsed(pack.read("statement.json"), dict, "statement.json"))
        self.versions: list[Version] = []

    def everything(self, keys: set[str], unsigned: bool) -> None:
        self.files()
        rows = self.about.get("reports")
        for row in rows if isinstance(rows, list) else []:
            try:
                self.versions.append(Version(self.pack, row))
            except KeyError as gone:
                self.verdict.add("report", str(gone.args[0]), "It is gone.")
        self.signatures(keys, unsigned)
        self.lines = Lines(self.pack, self.run, self.wanted(), self.verdict)
        self.heads()
        self.reports()
        self.attachments()
        self.summary()

    def files(self) -> None:
        """Each file is the one that the pack's statement names, and there is no other."""
        named = dict_in(dict_in(self.own.told, "pack"), "files")
        if dict_in(self.own.told, "pack").get("run") != self.run:
            self.verdict.add("file", "pack.json", "The pack's statement is about another run.")
        for name, digest in named.items():
            if name not in self.pack.names:
                self.verdict.add("file", name, "It is gone.")
            elif self.pack.digest(name) != digest:
                self.verdict.add("file", name, "It is not the file that the pack's statement names.")
        self.strangers(set(named) | {"statement.json"})

    def strangers(self, named: set[str]) -> None:
        for name in sorted(self.pack.names - named):
            if self.pack.zip or name.startswith(INSIDE):
                self.verdict.add("file", name, "The pack's statement does not name it.")
        for name, number in Counter(self.pack.listed).items():
            if number > 1:
                self.verdict.add("file", name, "It is there twice.")

    def signatures(self, keys: set[str], unsigned: bool) -> None:
        trust = Trust(self.keys, keys)
        trust.judge(self.own, self.verdict, not unsigned)
        for version in self.versions:
            trust.judge(version.statement, self.verdict, False)
        for one in self.given:
            newer = one.at > self.own.at and one.key not in self.keys.public and not keys
            Trust(None if newer else self.keys, trust.reached | keys).judge(one, self.verdict, True)
            if newer:
                self.verdict.notes.append(
                    f"{one.where}: this pack was made before its key {one.key} was known."
                )

    def witnesses(self) -> list[tuple[str, int, str]]:
        """Who names a head of this run: (name, last line, head)."""
        found = [
            (f"the seal in {one.name}", number_in(one.seal, "upto_seq"), text_in(one.seal, "head"))
            for one in self.versions
            if one.seal
        ]
        for one in [self.own, *(version.statement for version in self.versions), *self.given]:
            found += [(one.where, upto, head) for stream, upto, head in one.heads if stream == self.run]
        return found

    def wanted(self) -> set[int]:
        return {upto for _, upto, _ in self.witnesses()}

    def heads(self) -> None:
        lines, verdict = self.lines, self.verdict
        given = {one.where: one for one in self.given}
        for who, upto, head in self.witnesses():
            if upto > lines.last:
                self.beyond(who, upto, given.get(who))
            elif head not in lines.heads.get(upto, set()):
                says = f"{who} holds another head for line {upto} than these lines lead to."
                if who == self.own.where and lines.sealed < upto:
                    verdict.add("edited", lines_named(lines.sealed + 1, upto), says)
                else:
                    verdict.add("fork", f"line {upto} or before", says)
        for one in self.given:
            if self.run not in {stream for stream, _, _ in one.heads}:
                verdict.notes.append(f"{one.where} says nothing of this run.")
        forks([self.own, *(version.statement for version in self.versions), *self.given], verdict)

    def beyond(self, who: str, upto: int, given: Optional[Statement]) -> None:
        where = lines_named(self.lines.last + 1, upto)
        if given is None:
            self.verdict.add("missing", where, f"The end was cut off: {who} knows of these.")
        elif given.at > self.own.at:
            self.verdict.notes.append(f"{who} was made after this pack, and knows {where} too.")
        else:
            says = (
                f"{who} knew of these before this pack was made: a backup was restored, or the end cut off."
            )
            self.verdict.add("older", where, says)

    def reports(self) -> None:
        for one in self.versions:
            told = one.statement.report
            if one.issued not in self.lines.issued:
                says = "No line of its issue holds its digest: it is not the version that was issued."
                self.verdict.add("report", one.name, says)
            elif (told.get("digest"), told.get("run")) != (one.digest, self.run):
                self.verdict.add("report", one.name, f"{one.statement.where} names another digest.")
        numbers = [one.number for one in self.versions]
        if numbers != list(range(1, len(self.lines.issued) + 1)):
            says = f"Its lines tell of {len(self.lines.issued)} versions; here are {numbers or 'none'}."
            self.verdict.add("report", "reports", says)
        here = {one.number: one.digest for one in self.versions}
        for given in self.given:
            number = number_in(given.report, "version")
            if given.report.get("run") == self.run and here.get(number, "") not in (
                "",
                given.report.get("digest"),
            ):
                self.verdict.add("report", f"version {number}", f"{given.where} names another digest.")

    def attachments(self) -> None:
        left = dict(self.lines.attached)
        for row in self.pack.rows("attachments.jsonl"):
            name = text_in(row, "id")
            why = self.wrong_attachment(row, left.pop(name, None))
            if why:
                self.verdict.add("attachment", text_in(row, "file") or f"attachment {name}", why)
        for name in sorted(set(left) - {""}):
            self.verdict.add("attachment", f"attachment {name}", "A line tells of it, and it is gone.")

    def wrong_attachment(self, row: Row, told: Optional[str]) -> str:
        name = text_in(row, "file")
        if name and name not in self.pack.names:
            return "It is gone."
        if not row.get("removed_at"):
            content = self.pack.digest(name) if name else sha256(str(row.get("text")))
            if content != row.get("digest"):
                return "It is not the one whose digest stands beside it."
        if told is None:
            return "" if self.lines.unread else "No line tells of it."
        return "" if told == row.get("digest") else "Its line holds another digest."

    def summary(self) -> None:
        lines, notes = self.lines, self.verdict.notes
        told = [counted(lines.count, "line"), f"sealed to line {lines.sealed}"]
        told += [counted(len(self.versions), "report version"), f"{lines.removed} bodies removed by rule"]
        notes.insert(0, f"{', '.join(told)}; made {self.own.at}.")
        if self.own.signature:
            public = self.keys.public.get(self.own.key, "")
            notes.insert(
                1, f"Signed by key {self.own.key} ({public}) of installation {self.own.installation}."
            )


def forks(statements: list[Statement], verdict: Verdict) -> None:
    """Two statements with different heads for one line of a stream."""
    known: dict[tuple[str, int], tuple[str, str]] = {}
    for one in statements:
        for stream, upto, head in one.heads:
            before, who = known.setdefault((stream, upto), (head, one.where))
            if before != head:
                says = f"{who} and {one.where} hold different heads for it: there were two stories."
                verdict.add("fork", f"line {upto} of {stream}", says)


def check_pack(path: str, keys: set[str], given: list[Statement], unsigned: bool = False) -> Verdict:
    """Look at all of a pack, a zip or a folder. Raises nothing: what can't be read is a break."""
    verdict = Verdict(f"Pack {path}")
    try:
        pack = Pack(path)
        gone = [name for name in NEEDED if name not in pack.names]
        for name in gone:
            verdict.add("file", name, "It is gone.")
        if not gone:
            check = PackCheck(pack, given, verdict)
            verdict.subject = f"Run {check.run}"
            check.everything(keys, unsigned)
    except Exception as error:  # whatever a stranger's file makes fail: it is not intact
        verdict.add("form", path, f"It can't be read to its end: {error}.")
    return verdict


class StreamCheck(PackCheck):
    """One look at a file of lines. What is said of heads is said as of a pack's."""

    def __init__(self, path: str, given: list[Statement], verdict: Verdict) -> None:
        loose, self.given, self.verdict, self.versions = Loose(path), given, verdict, []
        self.run = text_in(next(loose.rows("about"), {}), "stream")
        own = [Statement("the statement at its end", row) for row in loose.rows("statement")]
        if len(own) != 1:
            raise Unreadable("its end is gone, or there is more than one")
        self.loose, self.own = loose, own[0]

    def all_of_it(self, keys: set[str], unsigned: bool) -> None:
        trust, verdict = Trust(None, keys), self.verdict
        trust.judge(self.own, verdict, not unsigned)
        for one in self.given:
            trust.judge(one, verdict, True)
        self.lines = Lines(self.loose, self.run, self.wanted(), verdict)
        if dict_in(self.own.told, "pack").get("stream") != self.run or (
            self.lines.last and not self.own.heads
        ):
            verdict.add("statement", self.own.where, "It is about another stream.")
        if dict_in(self.own.told, "pack").get("sha256") != self.loose.digest():
            says = "They are not the ones that the statement at the end names, or stand behind it."
            verdict.add("file", "lines of the file", says)
        self.heads()
        told = [counted(self.lines.count, "line"), f"sealed to line {self.lines.sealed}"]
        told.append(f"{self.lines.removed} bodies removed by rule")
        verdict.notes.insert(0, f"{', '.join(told)}; made {self.own.at}.")
        if self.own.signature:
            by = f"{self.own.key} ({self.own.public}) of installation {self.own.installation}"
            verdict.notes.insert(1, f"Signed by key {by}.")


def is_stream(path: str) -> bool:
    """Whether the first line of a file says that lines of evidence follow."""
    with open(path, "rb") as file:
        return b'"allstop.stream/1"' in file.readline(1_000)


def check_stream(path: str, keys: set[str], given: list[Statement], unsigned: bool = False) -> Verdict:
    """Look at a file of lines. Raises nothing: what can't be read is a break."""
    verdict = Verdict(f"Lines {path}")
    try:
        check = StreamCheck(path, given, verdict)
        verdict.subject = f"Stream {check.run}"
        check.all_of_it(keys, unsigned)
    except Exception as error:  # whatever a stranger's file makes fail: it is not intact
        verdict.add("form", path, f"It can't be read to its end: {error}.")
    return verdict


def check_statements(statements: list[Statement], keys: set[str]) -> Verdict:
    """Look at statements by themselves."""
    verdict = Verdict(f"Statement {statements[0].where}")
    for one in statements:
        Trust(None, keys).judge(one, verdict, True)
        by = f"key {one.key or 'none'} ({one.public}) of installation {one.installation or 'unknown'}"
        verdict.notes.append(f"{one.where}: {one.kind}, {one.at}, {len(one.heads)} heads, {by}.")
    forks(statements, verdict)
    return verdict


def statement_in(path: str) -> Statement:
    """Raises OSError, Unreadable."""
    with open(path, "rb") as file:
        return Statement(os.path.basename(path), parsed(file.read(FILE_MOST), dict, path))


# --- The command --------------------------------------------------------------------------------------------


def shown(text: str) -> str:
    """A stranger's text that can do nothing to a terminal."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)


def lines_of(verdict: Verdict, with_key: bool) -> Iterator[str]:
    """What the command prints."""
    for one in verdict.breaks:
        yield shown(f"{one.where}: {one.what}. {one.says}")
    places = f"broken, {counted(len(verdict.breaks), 'finding')}"
    yield shown(f"{verdict.subject}: {'intact' if verdict.intact else places}.")
    yield from (shown(note) for note in verdict.notes)
    if not with_key:
        yield "No --key was given: compare the key above with the one that you have from elsewhere."
    yield LIMITS


def check(path: str, keys: list[str], statements: list[str], unsigned: bool = False) -> Verdict:
    """A pack or a statement, by what it is. Raises OSError, Unreadable for what is neither."""
    ids = {name for key in keys for name in key_ids(key)}
    given = [statement_in(name) for name in statements]
    if os.path.isdir(path) or zipfile.is_zipfile(path):
        return check_pack(path, ids, given, unsigned)
    if is_stream(path):
        return check_stream(path, ids, given, unsigned)
    return check_statements([statement_in(path), *given], ids)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="verify.py", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "path", nargs="?", help="a pack (zip or folder) or a statement; by default this folder"
    )
    parser.add_argument("--key", action="append", default=[], help="id, public key, or file of public keys")
    parser.add_argument("--statement", action="append", default=[], help="a statement that you kept")
    parser.add_argument("--unsigned", action="store_true", help="take a pack that nobody signed")
    given = parser.parse_args(argv)
    path = given.path or os.path.dirname(os.path.abspath(__file__))
    try:
        verdict = check(path, given.key, given.statement, given.unsigned)
    except (OSError, Unreadable) as error:
        print(shown(f"verify.py: {error}"))
        return 1
    for line in lines_of(verdict, bool(given.key)):
        print(line)
    return 0 if verdict.intact else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
