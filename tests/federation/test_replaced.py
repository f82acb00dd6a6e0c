"""A run that fails before its first round is done leaves what was there before; a later failure says what it keeps."""

from pathlib import Path

import pytest

from fedgr_secure.errors import DivergedError, InputError
from fedgr_secure.federation import loop
from fedgr_secure.federation.folder import RunFolder

QUICK = {"method": "fedavg", "rounds": 2, "checkpoint_every": 1}


def everything(folder):
    files = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {path: data for path, data in files.items() if path.name != "lock"}


@pytest.fixture
def fail(monkeypatch):
    """`fail(round, error)`: the given round ends in this error."""

    def arm(number, error):
        real = loop.Federation.round

        def round(self, at):
            if at == number:
                raise error
            return real(self, at)

        monkeypatch.setattr(loop.Federation, "round", round)

    return arm


def test_overflow_by_a_huge_setting_is_divergence_and_leaves_nothing(tiny, tmp_path):
    for name in ("lr", "weight_decay"):
        with pytest.raises(DivergedError, match=r"round 0: the global model's test loss is (nan|inf)"):
            loop.run(tiny(**QUICK | {name: 3e38}, out=tmp_path / "runs" / "run"))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_was_there_stays_empty(tiny, tmp_path, fail):
    (tmp_path / "run").mkdir()
    fail(0, InputError("cat.png cannot be read"))
    with pytest.raises(InputError, match=r"^cat\.png cannot be read$"):
        loop.run(tiny(**QUICK, out=tmp_path / "run"))
    assert everything(tmp_path / "run") == {}


@pytest.mark.parametrize("error", [InputError("cat.png cannot be read"), DivergedError("nan"), RuntimeError("bug")])
def test_a_run_that_was_to_be_replaced_comes_back(tiny, tmp_path, fail, error):
    out = tmp_path / "run"
    loop.run(tiny(**QUICK, out=out, record_view="uploads"))
    before = everything(out)
    fail(0, error)
    with pytest.raises(type(error)):
        loop.run(tiny(**QUICK, out=out, lr=0.01, force=True))
    assert everything(out) == before


def test_with_its_first_round_the_new_run_has_replaced_the_old_and_a_later_error_says_what_stays(tiny, tmp_path, fail):
    out = tmp_path / "run"
    loop.run(tiny(**QUICK, out=out))
    fail(1, InputError("cat.png cannot be read"))
    with pytest.raises(InputError, match=r"^cat\.png cannot be read; .*run keeps the 1 rounds before$"):
        loop.run(tiny(**QUICK, out=out, lr=0.01, force=True))
    assert RunFolder(out).config().training.lr == 0.01
    assert not (out / "replaced").exists()
    assert not RunFolder(out).finished


def test_divergence_after_a_round_says_what_stays_too(tiny, tmp_path, fail):
    fail(1, DivergedError("nan"))
    with pytest.raises(DivergedError) as caught:
        loop.run(tiny(**QUICK, out=tmp_path / "run"))
    assert caught.value.__notes__ == [f"{tmp_path / 'run'} keeps the 1 rounds before"]


def test_an_interrupted_first_round_keeps_both_and_either_may_go_on(tiny, tmp_path, fail, monkeypatch):
    out, new = tmp_path / "run", {**QUICK, "lr": 0.01, "force": True}
    loop.run(tiny(**QUICK, out=out))
    before = everything(out)
    with monkeypatch.context():
        fail(0, KeyboardInterrupt())
        for _ in range(2):  # the second time the run that waits is still the first one
            with pytest.raises(KeyboardInterrupt):
                loop.run(tiny(**new, out=out))
            assert everything(out / "replaced") == before
        with pytest.raises(InputError, match="holds a run already"):
            loop.run(tiny(**QUICK, out=out))
    monkeypatch.undo()
    assert loop.resume(out).summary.rounds == 2
    assert RunFolder(out).config().training.lr == 0.01
    assert not (out / "replaced").exists()


class Killed(BaseException):
    """The process dies here."""


@pytest.mark.parametrize("step", range(1, 40))
def test_death_at_any_step_of_the_exchange_loses_no_file_of_the_old_run(tmp_path, monkeypatch, step):
    """Dies before the n-th change of a directory; then another attempt that fails brings the old run back."""
    from fedgr_secure.sections import Config

    folder = RunFolder(tmp_path)
    write = {"privacy": (), "threads": 1, "parameters": 1, "fingerprint": "old"}
    folder.write_manifest(Config(), **write)
    for name in ("rounds.jsonl", "timings.jsonl", "summary.json", "checkpoint/checkpoint.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("old\n")
    before, left = everything(tmp_path), [step]

    def attempt():
        with folder.fresh(force=True):
            folder.write_manifest(Config(seed=1), **write | {"fingerprint": "new"})
            raise RuntimeError("before the first round")

    def mortal(method):
        def wrapped(*args, **options):
            left[0] -= 1
            if left[0] == 0:
                raise Killed
            return method(*args, **options)

        return wrapped

    with monkeypatch.context() as patch:
        for name in ("rename", "rmdir", "mkdir", "unlink", "replace"):
            patch.setattr(Path, name, mortal(getattr(Path, name)))
        with pytest.raises((Killed, RuntimeError)):
            attempt()
    with pytest.raises(RuntimeError):
        attempt()
    assert everything(tmp_path) == before
