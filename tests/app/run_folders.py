"""Plausible run folders for the tests of what reads them."""

import dataclasses
import json
import math

from fedgr_secure.config import to_table
from fedgr_secure.records import ClientRecord, MixtureRecord, RoundRecord, RoundTiming, Summary, to_json
from fedgr_secure.sections import Config, DataConfig, FederationConfig, OutputConfig
from privacy.claims import PrivacyClaim, no_privacy

WEIGHTS = no_privacy("model weights", "plain", "The server sees every client's <update> & more.")
PROXIES = PrivacyClaim(
    "loss proxies", "noisy", "Laplace", 1.0, 1e-5, "replace-one", "none", "Each round adds to the budget."
)
MIXTURE = MixtureRecord((0.4, 2.2), (0.05, 0.4), (0.6, 0.4), None)


def make_config(method="fedgr", rounds=12):
    return Config(
        method=method,
        data=DataConfig(dataset="digits", given_labels="<y & noise>"),
        federation=FederationConfig(clients=6, cohort=2, rounds=rounds, warmup=4),
        output=OutputConfig(out="runs/<b>x</b>"),
    )


def make_rounds(method="fedgr", rounds=12):
    """Plausible records: accuracy saturates; a method without a sieve estimates nothing."""
    sieve = method == "fedgr"
    return [
        RoundRecord(
            round=i,
            stage="warm-up" if i < rounds // 3 else "main",
            cohort=(i % 6, (i + 1) % 6),
            accuracy=0.95 - 0.8 * math.exp(-6 * i / rounds),
            test_loss=0.3 + 2 * math.exp(-6 * i / rounds),
            estimated_noise=0.4 + 0.01 * (i % 3) if sieve else None,
            noise_rate_pearson=1 - 1 / (i + 1) if sieve and i > 0 else None,
            mislabel_accuracy=0.97 - 0.4 / (i + 1) if sieve else None,
            mislabel_auc=0.98 if sieve else None,
            memorised_share=0.05 + 0.01 * i if i % 3 == 2 else None,
            mixture=MIXTURE if sieve else None,
            bytes_up=120_000 + i,
            bytes_down=240_000,
            client_updates=2,
        )
        for i in range(rounds)
    ]


def make_summary(method="fedgr", rounds=12, **changes):
    records = make_rounds(method, rounds)
    summary = Summary(
        method=method,
        data="digits",
        seed=0,
        rounds=rounds,
        accuracy_last10=sum(r.accuracy for r in records[-10:]) / len(records[-10:]),
        accuracy_best=max(r.accuracy for r in records),
        noise_rate_pearson=records[-1].noise_rate_pearson,
        mislabel_accuracy=records[-1].mislabel_accuracy,
        mislabel_auc=records[-1].mislabel_auc,
        memorised_share=records[-1].memorised_share,
        seconds=rounds * 1.3,
        seconds_by_phase={"observe": 0.2 * rounds, "train": 0.9 * rounds, "evaluate": 0.1 * rounds},
        bytes_up=sum(r.bytes_up for r in records),
        bytes_down=sum(r.bytes_down for r in records),
        client_updates=2 * rounds,
        privacy=(WEIGHTS, PROXIES) if method == "fedgr" else (WEIGHTS,),
    )
    return dataclasses.replace(summary, **changes)


def make_losses():
    """Two bell-shaped heaps of counts over 0 to 4 nats."""

    def heap(mean, sd, n):
        return [round(n * math.exp(-((0.05 + 0.1 * i - mean) ** 2) / (2 * sd**2))) for i in range(40)]

    return {
        "edges": [0.1 * i for i in range(41)],
        "clean": heap(0.4, 0.22, 60),
        "wrong": heap(2.2, 0.6, 15),
        "mixture": dataclasses.asdict(MIXTURE),
    }


def make_clients(method="fedgr"):
    return [
        ClientRecord(k, 200 + k, "symmetric", 0.1 * k + 0.2, 0.1 * k + 0.19, estimate, 3)
        for k in range(6)
        for estimate in [0.1 * k + 0.2 if method == "fedgr" else None]
    ]


def make_folder(folder, method="fedgr", *, rounds=12, finished=True):
    """Write a run folder as the run loop does; an unfinished one lacks what is written at the end."""
    folder.mkdir()
    manifest = {
        "schema": 1,
        "config": to_table(make_config(method, rounds)),
        "versions": {"python": "3.11", "torch": "2.9 <cpu>"},
        "device": "cpu",
        "threads": 1,
        "data_fingerprint": "0" * 64,
        "command": ["fedgr-secure", "run", "--given-labels", "<y & noise>"],
        "started": "2026-03-01T10:00:00",
        "parameters": 12345,
        "privacy": [dataclasses.asdict(claim) for claim in make_summary(method).privacy],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "rounds.jsonl").write_text("".join(to_json(r) + "\n" for r in make_rounds(method, rounds)))
    timings = [RoundTiming(i, {"observe": 0.2, "train": 0.9, "evaluate": 0.1}) for i in range(rounds)]
    (folder / "timings.jsonl").write_text("".join(to_json(t) + "\n" for t in timings))
    if finished:
        (folder / "summary.json").write_text(to_json(make_summary(method, rounds)))
        (folder / "clients.json").write_text(json.dumps([dataclasses.asdict(c) for c in make_clients(method)]))
        if method == "fedgr":
            (folder / "losses.json").write_text(json.dumps(make_losses()))
    return folder


def edit(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
