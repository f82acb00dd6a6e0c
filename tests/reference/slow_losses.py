"""The terms of the training objective with loops over samples and `math`, straight from their definitions."""

import math


def softmax(row, tau=1.0):
    """Probabilities of one row of logits."""
    powers = [math.exp(value / tau) for value in row]
    return [power / sum(powers) for power in powers]


def cross_entropy(logits, targets):
    """Mean over all rows of -sum_c y_c log p_c."""
    total = 0.0
    for row, target in zip(logits, targets, strict=True):
        total -= sum(y * math.log(p) for y, p in zip(target, softmax(row), strict=True))
    return total / len(logits)


def divergence(teacher, student, tau):
    """Mean over all rows of KL(softmax(teacher / tau) || softmax(student / tau)), without a tau^2 factor."""
    total = 0.0
    for left, right in zip(teacher, student, strict=True):
        pairs = zip(softmax(left, tau), softmax(right, tau), strict=True)
        total += sum(p * math.log(p / q) for p, q in pairs)
    return total / len(teacher)


def cosine_distance(left, right):
    """Mean over all rows of 1 - cos."""
    total = 0.0
    for a, b in zip(left, right, strict=True):
        dot = sum(x * y for x, y in zip(a, b, strict=True))
        total += 1 - dot / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))
    return total / len(left)


def normalised_distance(left, right):
    """Mean over all rows of |a/|a| - b/|b||^2."""
    total = 0.0
    for a, b in zip(left, right, strict=True):
        size_a, size_b = math.sqrt(sum(x * x for x in a)), math.sqrt(sum(y * y for y in b))
        total += sum((x / size_a - y / size_b) ** 2 for x, y in zip(a, b, strict=True))
    return total / len(left)
