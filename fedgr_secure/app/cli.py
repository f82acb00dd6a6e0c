"""The command line of `fedgr-secure`, from `run` to `audit`. Torch is imported where it trains."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import shlex
import sys
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import tyro

from fedgr_secure.app import presets, usage
from fedgr_secure.app.failures import failure
from fedgr_secure.app.plan import Plan
from fedgr_secure.app.tradeoff import grid
from fedgr_secure.bounds import UNSET
from fedgr_secure.config import default_folder
from fedgr_secure.errors import InputError, require
from fedgr_secure.sections import Config, Method

_PROGRAM = "fedgr-secure"
_CONFIG_HELP = f"a TOML file or a preset ({', '.join(presets.names())}); comes before the flags, which override it"
_ConfigFile = Annotated[
    tyro.conf.Positional[str | None], tyro.conf.arg(metavar="CONFIG", help=_CONFIG_HELP, help_behavior_hint="")
]
_Folder = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN_FOLDER", help="what a run left behind")]


@dataclass(frozen=True)
class Run:
    """Run one method on one data set and leave a run folder. Without arguments: FedGR on scikit-learn's digits."""

    config_file: _ConfigFile = None
    json: bool = False
    """print the summary as JSON and nothing else"""
    config: Config = field(default_factory=Config)


@dataclass(frozen=True)
class Shared(Config):
    """What all runs of a comparison share; --methods says which methods run."""

    method: tyro.conf.Suppress[Method] = "fedgr"


@dataclass(frozen=True)
class Compare:
    """Run several methods on the same data, labels and initial weights, over several seeds, and print a table."""

    config_file: _ConfigFile = None
    methods: tuple[Method, ...] = ("fedavg", "fedprox", "fedgr")
    """the rows of the table; central trains one model on the pooled data"""
    seeds: int = 3
    """how many seeds, from --seed on"""
    jobs: int = 2
    """worker processes, one torch thread each"""
    json: bool = False
    """print the table as JSON and nothing else"""
    config: Config = field(default_factory=Config)


@dataclass(frozen=True)
class Resume:
    """Continue a stopped run from its last checkpoint, to the same numbers."""

    run_folder: _Folder
    json: bool = False
    """print the summary as JSON and nothing else"""


@dataclass(frozen=True)
class Report:
    """Write figures/ and report.html of a run folder again."""

    run_folder: _Folder


@dataclass(frozen=True)
class Attack:
    """Attack a finished run as its own server could: who is a member, whose, under which label; beside the claims."""

    run_folder: _Folder
    attacks: tuple[str, ...] = ()
    """only these (default: all that the run gives something to read)"""
    fail_above: tuple[str, ...] = ()
    """gates for scripts, such as auc=0.6 or row:tpr1=0.05: exit code 1 if the whole interval lies above one"""
    shadows: int = 0
    """shadow federations to train for lira and rmia, each about as long as the run (0: these attacks are left out)"""
    seed: int = 0
    """of the candidates and the bootstrap"""
    json: bool = False
    """print the outcomes as JSON and nothing else"""


@dataclass(frozen=True)
class Tradeoff:
    """Accuracy against privacy, claimed and measured: a grid of runs, attacks and audits, as a table and a report."""

    grid: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(metavar="GRID", help=f"a TOML file, or one of {', '.join(grid.names())}"),
    ] = "quick"
    data: Annotated[Path | None, UNSET] = None
    """the folder in which the grid's files of data are (default: the current one)"""
    out: Annotated[Path | None, UNSET] = None
    """the folder of all runs, tables and the report (default: runs/tradeoff-GRID)"""
    seeds: Annotated[int | None, UNSET] = None
    """how many seeds, from 0 (default: the grid's own number)"""
    jobs: int = 2
    """worker processes, one torch thread each"""
    target_epsilon: Annotated[float | None, UNSET] = None
    """which row is to be recommended? (default: 1, or the least that the grid claims)"""
    attacks: bool = True
    """attack every run, as its server could"""
    audits: bool = True
    """audit every plan that claims an epsilon"""
    json: bool = False
    """print the table and the recommendation as JSON and nothing else"""


@dataclass(frozen=True)
class Accountant:
    """What epsilon a plan costs, or what noise an epsilon needs, without a run."""

    plan: Plan = field(default_factory=Plan)
    json: bool = False
    """print the answer as JSON and nothing else"""


@dataclass(frozen=True)
class Audit:
    """Attack what a plan claims through the code that clients run; an epsilon that is refuted is exit code 1."""

    plan: Plan = field(default_factory=Plan)
    trials: int = 0
    """canaries to measure (default: as many as 1.5 million random numbers allow, some 30 seconds)"""
    confidence: float = 0.95
    """with which no bound is above the truth; a sound channel fails in at most the rest of the audits"""
    require_power: bool = False
    """exit code 1 also where less than 0.6 of the claim can be certified"""
    json: bool = False
    """print the result as JSON and nothing else"""


@dataclass(frozen=True)
class Methods:
    """Every method: its paper, its stages, what leaves a client, and whether that can travel under a secure sum."""

    json: bool = False
    """print the list as JSON and nothing else"""


Command = Run | Compare | Tradeoff | Resume | Report | Attack | Accountant | Audit | Methods
_COMMANDS: dict[str, type[Command]] = {kind.__name__.lower(): kind for kind in typing.get_args(Command)}


def parse(arguments: Sequence[str]) -> Command:
    """Arguments to a command; a CONFIG right after `run` or `compare` gives the flags their defaults.

    Raises:
        InputError: what the arguments ask for does not exist, or a value is not of its flag's type.
    """
    base, loaded = Config(), None
    if len(arguments) > 1 and arguments[0] in ("run", "compare") and not arguments[1].startswith("-"):
        base, loaded = presets.load(arguments[1]), arguments[1]
    shared = Shared(**{**vars(base), "method": Shared.method})
    command = _parsed(arguments, {"run": Run(config=base), "compare": Compare(config=shared)})
    if isinstance(command, Run | Compare):
        given = command.config_file
        require(
            given == loaded,
            f"{given}: no flag takes this value; a CONFIG goes right after the command, before every flag",
        )
    if isinstance(command, Compare):
        command = dataclasses.replace(command, config=Config(**vars(command.config)))
    return command


def _parsed(arguments: Sequence[str], defaults: dict[str, Command]) -> Command:
    """What tyro makes of the arguments; its complaint as one line. Of a command that is named, it reads no other."""
    first = next(iter(arguments), "")
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            if first in _COMMANDS:
                _require_own_flags(first, arguments[1:])
                return _read(_COMMANDS[first], arguments[1:], f"{_PROGRAM} {first}", defaults.get(first))
            return _read(Command, arguments)
    except SystemExit as end:
        if not end.code:  # the help
            raise
        raise InputError(usage.one_line(complaint.getvalue(), _PROGRAM, first, _known(first))) from None


def _require_own_flags(command: str, words: Sequence[str]) -> None:
    """The parser has flags of its own, for the completion of a shell; a command has none of them."""
    stray = next((word for word in words if word.startswith("--tyro-")), None)
    require(stray is None, f"{stray}: unknown to {command}; {_PROGRAM} {command} --help names all")


def _read(kind: Any, arguments: Sequence[str], program: str = _PROGRAM, default: Command | None = None) -> Command:
    about = "Federated learning with wrong labels (FedGR), and what its messages give away."
    given: dict[str, Any] = {} if default is None else {"default": default}
    command: Command = tyro.cli(
        kind,
        prog=program,
        description=about if program == _PROGRAM else kind.__doc__,
        args=list(arguments),
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes),
        **given,
    )
    return command


def _known(command: str) -> list[str]:
    """Every flag of a command; for a word that is none, the commands."""
    if command not in _COMMANDS:
        return [*_COMMANDS, "--version", "--help"]
    return [flag for flag in _flags(_COMMANDS[command]) if not (command == "compare" and flag == "--method")]


def _flags(kind: Any) -> Iterator[str]:
    for setting in dataclasses.fields(kind):
        if dataclasses.is_dataclass(setting.default_factory):
            yield from _flags(setting.default_factory)
        elif setting.name not in ("config_file", "run_folder", "grid"):
            yield f"--{setting.name.replace('_', '-')}"
            if isinstance(setting.default, bool):
                yield f"--no-{setting.name.replace('_', '-')}"


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point. Exit code 0: done; 1: a check failed or training diverged; 2: bad input; 130: interrupted."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a path may hold what the terminal's encoding does not
    sys.exit(_run(list(sys.argv[1:] if arguments is None else arguments)))


def _run(arguments: list[str]) -> int:
    command: Command | None = None
    try:
        with _written():
            if arguments == ["--version"]:
                print(_PROGRAM, _version())
                return 0
            command = parse(arguments)
            return _carry_out(command)
    except KeyboardInterrupt:
        return _end(_stopped(command), 130)
    except Exception as error:
        found = failure(error)
        if found is None:
            raise
        return _end(f"error: {found.words}", found.code)


def _version() -> str:
    try:
        return metadata.version(_PROGRAM)
    except metadata.PackageNotFoundError:
        return "(not installed: run from a checkout)"


def _carry_out(command: Command) -> int:
    from fedgr_secure.app import accountant, auditor, commands

    match command:
        case Run():
            commands.run(command.config, as_json=command.json)
        case Compare():
            return commands.compare(
                command.config,
                methods=command.methods,
                seeds=command.seeds,
                jobs=command.jobs,
                as_json=command.json,
            )
        case Tradeoff():
            from fedgr_secure.app.tradeoff import command as tradeoff

            asked = {part.name: getattr(command, part.name) for part in dataclasses.fields(tradeoff.Asked)}
            return tradeoff.tradeoff(tradeoff.Asked(**asked), as_json=command.json)
        case Resume():
            commands.resume(command.run_folder, as_json=command.json)
        case Report():
            commands.report(command.run_folder)
        case Attack():
            from fedgr_secure.app import attack

            return attack.attack(
                command.run_folder,
                attacks=command.attacks,
                fail_above=command.fail_above,
                seed=command.seed,
                shadows=command.shadows,
                as_json=command.json,
            )
        case Accountant():
            accountant.answer(command.plan, as_json=command.json)
        case Audit():
            return auditor.report(
                command.plan,
                trials=command.trials,
                confidence=command.confidence,
                require_power=command.require_power,
                as_json=command.json,
            )
        case Methods():
            from fedgr_secure.app import methods

            methods.answer(as_json=command.json)
    return 0


@contextlib.contextmanager
def _written() -> Iterator[None]:
    """What was printed inside is written at the end, or that is an error; Python's own try at exit is a traceback."""
    try:
        yield
    finally:
        try:
            if sys.stdout is not None:
                sys.stdout.flush()
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise InputError(f"standard output: cannot be written: {error.strerror}") from None


def _end(words: str, code: int) -> int:
    with contextlib.suppress(OSError):
        print(words, file=sys.stderr, flush=True)
    return code


def _stopped(command: Command | None) -> str:
    """How to go on after an interrupt."""
    if isinstance(command, Tradeoff):
        return "stopped; the same command continues"
    if isinstance(command, Compare):
        return f"stopped; the same command {'without --force ' * command.config.output.force}continues"
    if isinstance(command, Run):
        folder = command.config.output.out or default_folder(command.config)
    elif isinstance(command, Resume):
        folder = command.run_folder
    else:
        return "stopped"
    if not (folder / "manifest.json").is_file():
        return "stopped before the first round"
    finished = (folder / "summary.json").exists()
    what = "the run is complete; for its report" if finished else "continue with"
    return f"stopped; {what}: {_PROGRAM} {'report' if finished else 'resume'} {shlex.quote(str(folder))}"
