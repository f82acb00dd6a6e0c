"""What other projects import: cheap, complete, and loud when another package takes its place."""

import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import fedgr_secure


def test_every_public_name_is_there():
    for name in fedgr_secure.__all__:
        assert getattr(fedgr_secure, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = fedgr_secure.nothing


def test_importing_the_package_and_the_channel_needs_no_torch():
    code = "import sys, fedgr_secure, privacy.channels.plain; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_foreign_package_of_the_same_name_is_named(tmp_path, monkeypatch):
    (tmp_path / "attacks").mkdir()
    (tmp_path / "attacks" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [m for m in sys.modules if m == "attacks" or m.startswith("attacks.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.warns(RuntimeWarning, match="'attacks'") as caught:
        fedgr_secure._warn_of_foreign_packages()
    assert str(tmp_path) in str(caught[0].message)


def test_our_own_packages_raise_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fedgr_secure._warn_of_foreign_packages()
    assert Path(fedgr_secure.__file__).parent.name == "fedgr_secure"
