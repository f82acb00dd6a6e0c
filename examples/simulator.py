"""Somebody's federated simulator in plain NumPy: it imports nothing of fedgr-secure (see import_into_simulator.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

Vector = NDArray[np.float64]
PIXELS, HIDDEN, CLASSES = 64, 64, 10
BATCH = 16


@dataclass
class Client:
    """Its images and labels, of which it trains on those that are kept; `wrong` is the truth, for figures alone."""

    images: Vector
    labels: NDArray[np.int64]
    wrong: NDArray[np.bool_]
    kept: NDArray[np.bool_]


def federation(clients: int, draw: np.random.Generator) -> tuple[list[Client], Vector, NDArray[np.int64]]:
    """scikit-learn's digits, 40 to 80 % of each client's labels wrong; and images and true labels to test with."""
    digits, found = load_digits(), []
    images, true, order = digits.data / 16, digits.target, draw.permutation(len(digits.target))
    for part in np.array_split(order[400:], clients):
        wrong = draw.random(len(part)) < draw.uniform(0.4, 0.8)
        labels = (true[part] + wrong * draw.integers(1, CLASSES, len(part))) % CLASSES
        found.append(Client(images[part], labels, wrong, np.ones(len(part), bool)))
    return found, images[order[:400]], true[order[:400]]


def forward(weights: Vector, images: Vector) -> tuple[Vector, Vector]:
    """Hidden units, and the probability of each class."""
    first, second = np.split(weights, [PIXELS * HIDDEN])
    hidden = np.maximum(images @ first.reshape(PIXELS, HIDDEN), 0)
    scores = hidden @ second.reshape(HIDDEN, CLASSES)
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return hidden, powers / powers.sum(axis=1, keepdims=True)


def losses(weights: Vector, client: Client) -> Vector:
    """Cross-entropy of each sample with its given label, nats."""
    probabilities = forward(weights, client.images)[1]
    return -np.log(probabilities[np.arange(len(client.labels)), client.labels] + 1e-12)


def train(weights: Vector, client: Client, draw: np.random.Generator) -> Vector:
    """The change of the weights by five epochs of SGD on the samples that the client keeps."""
    moved, chosen = weights.copy(), np.flatnonzero(client.kept)
    for _ in range(5):
        for batch in np.array_split(draw.permutation(chosen), len(chosen) // BATCH + 1):
            images, labels = client.images[batch], client.labels[batch]
            hidden, error = forward(moved, images)
            error[np.arange(len(batch)), labels] -= 1
            back = error @ moved[PIXELS * HIDDEN :].reshape(HIDDEN, CLASSES).T * (hidden > 0)
            moved -= 0.2 / max(len(batch), 1) * np.concatenate([(images.T @ back).ravel(), (hidden.T @ error).ravel()])
    return moved - weights


def run(
    clients: Sequence[Client],
    images: Vector,
    labels: NDArray[np.int64],
    *,
    rounds: int,
    observe: Callable[[int, Vector], None],
    average: Callable[[int, Vector, list[Vector]], Vector],
    draw: np.random.Generator,
) -> float:
    """FedAvg of all clients; the mean accuracy of the last five rounds.

    Args:
        clients: they all take part in every round.
        images, labels: to test with.
        rounds: how many.
        observe: called with round and global weights before the clients train.
        average: from round, global weights and the clients' changes to the mean of these.
        draw: of weights and batches.
    """
    weights = np.concatenate([draw.normal(0, 0.2, PIXELS * HIDDEN), np.zeros(HIDDEN * CLASSES)])
    accuracies = []
    for number in range(rounds):
        observe(number, weights)
        weights = weights + average(number, weights, [train(weights, client, draw) for client in clients])
        accuracies.append(np.mean(forward(weights, images)[1].argmax(1) == labels))
    return float(np.mean(accuracies[-5:]))
