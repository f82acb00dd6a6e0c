"""What the tests share: one torch thread, and federations that run in a fraction of a second."""

import os

import pytest
from hypothesis import settings

os.environ["OMP_NUM_THREADS"] = "1"  # read when torch is first imported, also by child processes

from fedgr_secure.config import override
from fedgr_secure.sections import Config

settings.register_profile("slow machines", deadline=None)
settings.load_profile("slow machines")

TINY = {
    "train_size": 120,
    "test_size": 60,
    "model": "mlp",
    "width": 2,
    "local_epochs": 1,
    "clients": 4,
    "cohort": 2,
    "rounds": 4,
    "warmup": 1,
    "checkpoint_every": 4,
    "secagg": False,
    "channel": "plain",
}


def tiny_config(**changes):
    """A small run; settings by field name, which are unique over all sections."""
    return override(Config(), TINY | changes)


@pytest.fixture(scope="session")
def tiny():
    """`tiny(method="fedavg", rounds=2, ...)` is a small configuration."""
    return tiny_config


@pytest.fixture(scope="session")
def tiny_flags():
    """`tiny_flags(rounds=2, ...)` is the same as command-line flags; a setting that is None is left out."""

    def flags(**changes):
        settings = {name: value for name, value in (TINY | changes).items() if value is not None}
        words = []
        for name, value in settings.items():
            flag = name.replace("_", "-")
            words += [f"--{'' if value else 'no-'}{flag}"] if isinstance(value, bool) else [f"--{flag}", str(value)]
        return words

    return flags


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """`finished(rounds=2, ...)` is the `Result` of a small run; equal settings run once a session. Do not change it."""
    results = {}

    def result(**changes):
        from fedgr_secure.federation.loop import run

        key = repr(sorted(changes.items()))
        if key not in results:
            out = tmp_path_factory.mktemp("finished") / "run"
            results[key] = run(tiny_config(out=out, **changes))
        return results[key]

    return result


class Stop(Exception):
    """Ends a run from inside, between two rounds."""


@pytest.fixture
def stopped(tmp_path):
    """`stopped(after=2, ...)` is the folder of a small run that ended after that many rounds."""

    def folder(*, after, out=None, **changes):
        from fedgr_secure.federation.loop import run

        def stop(record):
            if record.round + 1 == after:
                raise Stop

        out = out or tmp_path / "stopped"
        with pytest.raises(Stop):
            run(tiny_config(out=out, **changes), on_round=[stop])
        return out

    return folder
