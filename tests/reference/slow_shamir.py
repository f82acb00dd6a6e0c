"""Shamir's secret sharing written out: powers, Gaussian elimination and counting, over any prime."""

import itertools


def evaluate(coefficients, point, prime):
    """The polynomial with these coefficients, from the constant up, at the point."""
    return sum(c * pow(point, power, prime) for power, c in enumerate(coefficients)) % prime


def interpolate(points, values, prime):
    """The coefficients, from the constant up, of the one polynomial through the points: solves Vandermonde's system."""
    size = len(points)
    rows = [[pow(x, power, prime) for power in range(size)] + [y] for x, y in zip(points, values, strict=True)]
    for column in range(size):
        pivot = next(row for row in range(column, size) if rows[row][column])
        rows[column], rows[pivot] = rows[pivot], rows[column]
        scale = pow(rows[column][column], -1, prime)
        rows[column] = [entry * scale % prime for entry in rows[column]]
        for row in range(size):
            if row != column:
                factor = rows[row][column]
                rows[row] = [(a - factor * b) % prime for a, b in zip(rows[row], rows[column], strict=True)]
    return [row[-1] for row in rows]


def polynomials_through(points, values, secret, threshold, prime):
    """How many polynomials of degree threshold - 1 have this secret and these values: tries all of a small field."""
    return sum(
        all(evaluate((secret, *rest), x, prime) == y for x, y in zip(points, values, strict=True))
        for rest in itertools.product(range(prime), repeat=threshold - 1)
    )


def is_probable_prime(number, bases):
    """Miller and Rabin's test: an odd composite passes each random base with probability below 1/4."""
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    return all(_passes(number, base, odd, twos) for base in bases)


def _passes(number, base, odd, twos):
    power = pow(base, odd, number)
    return power == 1 or any(pow(power, 2**i, number) == number - 1 for i in range(twos))
