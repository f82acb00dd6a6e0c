"""The command line: `fedgr-secure run | compare | resume | report`. Torch is imported only by what trains."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from fedgr_secure.app import presets
from fedgr_secure.config import Config, Method
from fedgr_secure.errors import DivergedError, InputError, require

_CONFIG_HELP = f"a TOML file or a preset ({', '.join(presets.names())}); comes before the flags, which override it"


@dataclass(frozen=True)
class Run:
    """Run one method on one data set and leave a run folder. Without arguments: FedGR on scikit-learn's digits."""

    config_file: Annotated[
        tyro.conf.Positional[str | None],
        tyro.conf.arg(metavar="CONFIG", help=_CONFIG_HELP),
    ] = None
    json: bool = False
    """print the summary as JSON and nothing else"""
    config: Config = field(default_factory=Config)


@dataclass(frozen=True)
class Compare:
    """Run several methods on the same data, labels and initial weights, over several seeds, and print a table."""

    config_file: Annotated[
        tyro.conf.Positional[str | None],
        tyro.conf.arg(metavar="CONFIG", help=_CONFIG_HELP),
    ] = None
    methods: tuple[Method, ...] = ("fedavg", "fedprox", "fedgr")
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

    run_folder: tyro.conf.Positional[Path]
    json: bool = False
    """print the summary as JSON and nothing else"""


@dataclass(frozen=True)
class Report:
    """Write figures/ and report.html of a run folder again."""

    run_folder: tyro.conf.Positional[Path]


def parse(arguments: Sequence[str]) -> Run | Compare | Resume | Report:
    """Arguments to a command; a CONFIG right after `run` or `compare` gives the flags their defaults."""
    base, loaded = Config(), None
    if len(arguments) > 1 and arguments[0] in ("run", "compare") and not arguments[1].startswith("-"):
        base, loaded = presets.load(arguments[1]), arguments[1]
    kind = (
        Annotated[Run, _subcommand("run", Run, default=Run(config=base))]
        | Annotated[Compare, _subcommand("compare", Compare, default=Compare(config=base))]
        | Annotated[Resume, _subcommand("resume", Resume)]
        | Annotated[Report, _subcommand("report", Report)]
    )
    command: Run | Compare | Resume | Report = tyro.cli(
        kind,
        prog="fedgr-secure",
        description="Federated learning with wrong labels (FedGR), and what its messages give away.",
        args=list(arguments),
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes),
    )
    if isinstance(command, Run | Compare):
        given = command.config_file
        require(given == loaded, f"config: {given}, allowed: right after the command, before every flag")
    return command


def _subcommand(name: str, kind: type, **default: Any) -> Any:
    """A subcommand with its docstring given outright: tyro would parse the source again to find it."""
    return tyro.conf.subcommand(name, description=kind.__doc__, **default)


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point. Exit code 0: done; 1: a check failed or training diverged; 2: bad input; 130: interrupted."""
    sys.exit(_run(list(sys.argv[1:] if arguments is None else arguments)))


def _run(arguments: list[str]) -> int:
    try:
        command = parse(arguments)
        from fedgr_secure.app import commands

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
            case Resume():
                commands.resume(command.run_folder, as_json=command.json)
            case Report():
                commands.report(command.run_folder)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except DivergedError as error:
        print("error: " + "; ".join([str(error), *getattr(error, "__notes__", [])]), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; continue with: fedgr-secure resume RUN_FOLDER", file=sys.stderr)
        return 130
    return 0
