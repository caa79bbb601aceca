"""What the browser is given: vendored files are the ones we looked at, and nothing is inline."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VENDOR = ROOT / "static" / "vendor"
MANIFEST = json.loads((VENDOR / "manifest.json").read_text())
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))


@pytest.mark.parametrize("entry", MANIFEST["files"], ids=lambda entry: entry["file"])
def test_a_vendored_file_has_the_digest_of_the_manifest(entry: dict[str, str]) -> None:
    assert hashlib.sha256((VENDOR / entry["file"]).read_bytes()).hexdigest() == entry["sha256"]


@pytest.mark.parametrize("entry", MANIFEST["files"] + MANIFEST["derived"], ids=lambda entry: entry["file"])
def test_a_vendored_file_names_its_version_and_brings_its_licence(entry: dict[str, str]) -> None:
    assert entry["version"]
    assert entry["licence"]
    assert len((VENDOR / entry["licence_file"]).read_text()) > 200


def test_every_vendored_file_is_in_the_manifest() -> None:
    known = {entry["file"] for entry in MANIFEST["files"]}
    known |= {entry["licence_file"] for entry in MANIFEST["files"] + MANIFEST["derived"]}
    assert {path.name for path in VENDOR.iterdir()} == known | {"manifest.json"}


def test_the_live_script_stays_within_a_hundred_lines() -> None:
    assert len((ROOT / "static" / "live.js").read_text().splitlines()) <= 100


def test_no_template_holds_inline_script_style_or_handlers() -> None:
    assert len(TEMPLATES) >= 10
    inline = re.compile(r"<style|\sstyle=|\son[a-z]+=|<script(?![^>]*\bsrc=)|javascript:|hx-on", re.I)
    found = [path.name for path in TEMPLATES if inline.search(path.read_text())]
    assert found == []


def test_no_template_switches_escaping_off() -> None:
    found = [p.name for p in TEMPLATES if re.search(r"\|safe\b|autoescape off", p.read_text())]
    assert found == []


def test_the_stylesheet_asks_no_other_host_and_finds_its_fonts() -> None:
    text = (ROOT / "static" / "allstop.css").read_text()
    urls = re.findall(r"url\(\"?([^\")]+)", text)
    assert len(urls) == 2
    assert all((ROOT / "static" / url).is_file() for url in urls)
