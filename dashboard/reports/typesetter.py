"""The process that sets one report: a job as JSON on stdin, the PDF on stdout. Imports nothing of ours.

Where no font has a sign, PDF/UA refuses the whole document; then each such sign is written as its code
point, [U+1F4B8], which is less than the sign and more than an empty box.
"""

import json
import resource
import sys
import unicodedata
from pathlib import Path
from typing import Any

import typst

CPU_S, MEMORY = 60, 4 << 30
PLAIN = 0x024F  # up to here the fonts that typst brings have every letter


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    job = json.load(sys.stdin.buffer)
    sys.stdout.buffer.write(render(job))


def render(job: dict[str, Any]) -> bytes:
    """The document, with the signs as they are; else with those written out that no font has."""
    template = Path(job["template"]).read_bytes()
    try:
        return compiled(template, job["data"], job)
    except typst.TypstError as error:
        if "could not be displayed" not in str(error):
            raise
        return compiled(template, spelled(job["data"]), job)


def compiled(template: bytes, data: str, job: dict[str, Any]) -> bytes:
    wanted = {"pdf_standards": "ua-1"} if job["form"] == "pdf" else {"ppi": 80}
    made: Any = typst.compile(
        template, format=job["form"], sys_inputs={"data": data}, timestamp=job["at"], **wanted
    )
    return bytes(made if isinstance(made, bytes) else made[0])


KEPT = set("–—\u2018’“”…·×€→≥≤•\u2212\u200b")


def spelled(data: str) -> str:
    """Signs beyond the Latin letters as [U+…]; JSON's own signs are all ASCII."""
    return "".join(sign if is_plain(sign) else f"[U+{ord(sign):04X}]" for sign in data)


def is_plain(sign: str) -> bool:
    greek_or_cyrillic = "\u0370" <= sign <= "\u052f" and unicodedata.category(sign) != "Cn"
    return ord(sign) <= PLAIN or sign in KEPT or greek_or_cyrillic


if __name__ == "__main__":
    main()
