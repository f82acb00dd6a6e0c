"""What README and docs/ tell a user to type: every Python block runs, and the parser takes every command."""

import re
import shlex
from pathlib import Path

import pytest

from fedgr_secure.app import cli
from fedgr_secure.errors import InputError

ROOT = Path(__file__).resolve().parents[2]


def pages(*patterns):
    """Paths below the root, sorted."""
    return sorted(path.relative_to(ROOT).as_posix() for pattern in patterns for path in ROOT.glob(pattern))


BLOCK = re.compile(r"^```(python|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SMALL = ["--model", "mlp", "--clients", "4", "--cohort", "2", "--rounds", "4", "--warmup", "2"]
"""makes a run of the README one of seconds; its blocks are about what can be read, not about figures"""


def commands(page):
    """Every command of `fedgr-secure` in an indented line of a page, without comments."""
    for line in (ROOT / page).read_text().splitlines():
        if line.startswith("    "):
            for part in re.split(r"\s;\s|&&", re.sub(r"\s#.*", "", line)):
                if part.strip().startswith("fedgr-secure "):
                    yield part.strip()


def parsed(command):
    """A command as the parser takes it; None for one that asks for help."""
    try:
        return cli.parse(shlex.split(command)[1:])
    except SystemExit as end:
        assert not end.code
        return None


def write_settings(page):
    """Each TOML block of a page goes to the file that its first line names."""
    for kind, body in BLOCK.findall((ROOT / page).read_text()):
        if kind == "toml":
            Path(re.match(r"# (\S+\.toml)\n", body)[1]).write_text(body)


@pytest.mark.parametrize("page", pages("README.md", "SECURITY.md", "docs/*.md"))
def test_every_command_of_a_page_is_one_that_the_parser_takes(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_settings(page)
    for command in commands(page):
        parsed(command)


def test_a_wrong_flag_in_a_page_would_be_found():
    with pytest.raises(InputError, match="--shadow"):
        parsed("fedgr-secure attack runs/seen --shadow 8")
    assert len(list(commands("README.md"))) >= 15


@pytest.mark.slow
@pytest.mark.parametrize("page", pages("README.md", "docs/guide_*.md"))
def test_every_python_block_of_a_page_runs(page, tmp_path, monkeypatch):
    """In order, with the names that earlier blocks made."""
    monkeypatch.chdir(tmp_path)
    write_settings(page)
    if page == "README.md":
        record_seen()
    names, text = {"__name__": "__main__"}, (ROOT / page).read_text()
    blocks = [block for block in BLOCK.finditer(text) if block[1] == "python"]
    assert blocks
    for block in blocks:
        line = text[: block.start(2)].count("\n")  # so that an error names the page's own line
        exec(compile("\n" * line + block[2], ROOT / page, "exec"), names)
    assert not [outcome.error for outcome in names.get("outcomes", ()) if outcome.error]  # these do not raise


def record_seen():
    """The run that README's second use attacks, by its own command, but small."""
    (command,) = [
        c for c in commands("README.md") if c.startswith("fedgr-secure run") and c.endswith("--out runs/seen")
    ]
    with pytest.raises(SystemExit) as end:
        cli.main([*shlex.split(command)[1:], *SMALL])
    assert end.value.code == 0
