"""Which settings can work together. Imports neither torch nor numpy."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, get_args, get_type_hints

from fedgr_secure.baseline_sections import UNPRIVATE, UNSUMMED
from fedgr_secure.bounds import Bound
from fedgr_secure.errors import require
from fedgr_secure.sections import Config, Method
from fedgr_secure.typed import short


def check(config: Config) -> Config:
    """Refuse settings that cannot work, before anything is loaded or written.

    Raises:
        InputError: naming the setting, its value and what is allowed.
    """
    _check_bounds(config)
    d, n, p, f = config.data, config.noise, config.partition, config.federation
    m, g = config.model, config.fedgr
    require(n.rho_min <= n.rho_max, f"rho_min: {n.rho_min}, allowed: at most rho_max = {n.rho_max}")
    require(f.cohort <= f.clients, f"cohort: {f.cohort}, allowed: at most clients = {f.clients}")
    require(
        d.dataset == "digits" or d.path is not None,
        f"path: not given, but dataset {d.dataset} is read from disk: name its file or folder with --path",
    )
    require(
        p.partition != "file" or p.partition_file is not None,
        "partition_file: not given, but partition is 'file': name the JSON file with --partition-file",
    )
    require(
        m.pretrained is None or m.model == "resnet50",
        f"pretrained: {m.pretrained}, allowed: only with model resnet50, not {m.model}",
    )
    require(
        not (m.norm == "batch" and config.training.batch_size == 1),
        "batch_size: 1, allowed with norm batch: from 2 (one sample has no variance)",
    )
    _check_averaging(config)
    _check_proxies(config)
    _check_dp_sgd(config)
    _check_forgetting(config)
    require(
        not (g.decide_at == "server" and not g.sieve),
        "decide_at: server, allowed: only with the sieve on (without it each client decides alone)",
    )
    return config


def sums_securely(config: Config) -> bool:
    """Whether weights travel under secure sums."""
    return config.secure_sum.secagg and config.method != "central"


def claims_proxies(config: Config) -> bool:
    """Whether loss proxies are released under an epsilon: by a private channel whose noise is the system's."""
    proxies, summed = config.proxies, config.proxies.channel == "histogram"
    seeded = proxies.noise != "system" or (summed and config.secure_sum.entropy != "system")
    return config.method == "fedgr" and config.fedgr.sieve and proxies.channel != "plain" and not seeded


def oracle(config: Config) -> str | None:
    """What of the truth this configuration tells the clients, in words; None, as for every method's default: nothing.

    >>> from fedgr_secure.config import override
    >>> oracle(override(Config(), {"method": "coteaching", "forget": "oracle"}))
    'the true noise rate of each client'
    """
    asked = config.method == "coteaching" and config.coteaching.forget == "oracle"
    return "the true noise rate of each client" if asked else None


def unused(config: Config) -> tuple[str, ...]:
    """Settings that were changed from their defaults and have no effect here, each in a sentence.

    >>> from fedgr_secure.config import override
    >>> unused(override(Config(), {"channel": "plain", "epsilon": 3.0}))
    ('epsilon: 3.0 has no effect with channel plain',)
    """
    found = []
    for section, kept, why in _idle(config):
        now, usual = getattr(config, section), getattr(Config(), section)
        for part in dataclasses.fields(now):
            value = getattr(now, part.name)
            if part.name not in kept and value != getattr(usual, part.name):
                found.append(f"{part.name}: {short(value)} has no effect {why}")
    return tuple(found)


def _idle(config: Config) -> list[tuple[str, set[str], str]]:
    """Sections of which nothing is asked but the named settings, and why."""
    method, p = config.method, config.proxies
    shared = {"delta", "adjacency", "noise"} if trains_privately(config) else set()
    idle: list[tuple[str, set[str], str]] = []
    if method != "fedgr":
        idle += [("fedgr", set(), f"with method {method}"), ("proxies", shared, f"with method {method}")]
    elif not config.fedgr.sieve:
        idle.append(("proxies", set(), "with --no-sieve"))
    elif p.channel == "plain":
        idle.append(("proxies", {"channel"}, "with channel plain"))
    own = {part.name for part in dataclasses.fields(config)} & set(get_args(Method)) - {"fedgr", method}
    idle += [(section, set(), f"with method {method}") for section in sorted(own)]
    if method == "coteaching" and config.coteaching.forget != "given":
        kept = {"forget", "forget_rounds", "forget_exponent"}
        idle.append(("coteaching", kept, f"with forget {config.coteaching.forget}"))
    if not trains_privately(config):
        idle.append(("dp_sgd", set(), "without --weights-epsilon"))
    return idle


def _check_averaging(config: Config) -> None:
    """Secure sums and clients that vanish need several clients, and each other."""
    d, secagg = config.dropouts, sums_securely(config)
    pooled, why = config.method == "central", UNSUMMED.get(config.method)
    require(
        not secagg or why is None,
        f"secagg: on, allowed with method {config.method}: off, by --no-secagg ({why})",
    )
    require(
        not secagg or config.federation.cohort > 1, "cohort: 1, allowed with secagg: from 2 clients (or --no-secagg)"
    )
    lost = max(d.dropout, d.dropout_keys, d.dropout_shares, d.dropout_unmask)
    require(not (pooled and lost), f"dropout: {lost}, allowed with method central: 0")
    require(
        secagg or d.dropout_unmask == 0,
        f"dropout_unmask: {d.dropout_unmask}, allowed without secagg: 0 (there is nothing to unmask)",
    )


def _check_proxies(config: Config) -> None:
    """Channels that the other settings rule out."""
    p, g = config.proxies, config.fedgr
    if config.method != "fedgr" or not g.sieve:
        return
    if p.channel == "histogram":
        require(
            config.secure_sum.secagg,
            "channel: histogram, allowed: with --secagg (one client's share of the noise hides nothing by itself); "
            "--channel plain is FedGR as published",
        )
        require(g.decide_at == "client", "decide_at: server, allowed with channel histogram: client (it sees no row)")
    require(
        p.channel == "plain" or g.mixture_data == "cohort",
        f"mixture_data: {g.mixture_data}, allowed with channel {p.channel}: cohort",
    )
    require(
        p.channel == "plain" or not g.local_observation,
        f"local_observation: on, allowed with channel {p.channel}: off (a loss per participation is accounted)",
    )
    require(
        p.channel != "noisy" or p.noising != "fresh_on_mean" or p.allow_fresh_noise,
        "noising: fresh_on_mean, allowed: once, per_loss or diagonal; fresh noise on each mean is sqrt(T) worse at the "
        "same epsilon (--allow-fresh-noise takes it)",
    )


def trains_privately(config: Config) -> bool:
    """Whether the weights are trained by DP-SGD."""
    return config.dp_sgd.weights_epsilon is not None


def _check_dp_sgd(config: Config) -> None:
    """What would let a record reach the updates past the clipped gradients of its own loss."""
    if not trains_privately(config):
        return
    p, g, who = config.proxies, config.fedgr, f"weights_epsilon: {config.dp_sgd.weights_epsilon}"
    why = UNPRIVATE.get(config.method)
    require(why is None, f"{who}, allowed with method {config.method}: none ({why})")
    require(
        p.adjacency in ("replace-one", "label"),
        f"adjacency: {p.adjacency}, allowed with weights_epsilon: replace-one or label (how many records a client has "
        "is told by its weight in the mean and by its sampling rate, and a whole client is not hidden)",
    )
    require(p.delta > 0, f"delta: {p.delta}, allowed with weights_epsilon: above 0")
    require(config.model.norm == "group", f"norm: {config.model.norm}, allowed with weights_epsilon: group")
    if config.method != "fedgr":
        return
    require(g.sieve, f"{who}, allowed with the sieve on (a client's own mixture mixes its records)")
    require(
        p.channel != "plain",
        f"{who}, allowed with channel histogram or noisy (in the clear the proxies give every record away, and what "
        "the weights hide is lost)",
    )
    require(
        not g.reset_teacher,
        "reset_teacher: on, allowed with weights_epsilon: off (it changes the training of all records of a client)",
    )


def _check_forgetting(config: Config) -> None:
    """FL-Coteaching's share comes from somewhere."""
    c = config.coteaching
    require(
        config.method != "coteaching" or c.forget != "given" or c.forget_rate is not None,
        "forget_rate: not given, but forget is 'given': name the share with --forget-rate",
    )


def _check_bounds(section: Any) -> None:
    """Hold every number of a config dataclass against the `Bound` of its type, and every path against the system."""
    hints = get_type_hints(type(section), include_extras=True)
    for field_ in dataclasses.fields(section):
        value = getattr(section, field_.name)
        if dataclasses.is_dataclass(value):
            _check_bounds(value)
        if Path in _kinds(hints[field_.name]):
            fits = value is None or isinstance(value, Path)
            require(fits, f"{field_.name}: {value!r}, allowed: a pathlib.Path")
            require("\0" not in str(value), f"{field_.name}: {str(value)!r}, allowed: a path without a NUL character")
        for bound in _bounds(hints[field_.name]):
            require(value is None or bound.holds(value), f"{field_.name}: {short(value)}, allowed: {bound.words}")


def _kinds(hint: Any) -> list[Any]:
    """The plain types in a type, at any depth."""
    inner = get_args(hint)
    return [kind for part in inner for kind in _kinds(part)] if inner else [hint]


def _bounds(hint: Any) -> list[Bound]:
    """The bounds in a type, at any depth."""
    found = [entry for entry in getattr(hint, "__metadata__", ()) if isinstance(entry, Bound)]
    return found + [bound for inner in get_args(hint) for bound in _bounds(inner)]
