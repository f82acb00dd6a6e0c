"""Edwards25519 in plain integers (RFC 8032, section 5.1): decoding, addition, and the points of small order."""

P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P
ROOT = pow(2, (P - 1) // 4, P)
"""a square root of -1"""
NEUTRAL = (0, 1)
ORDER = 2**252 + 27742317777372353535851937790883648493


def decode(encoded):
    """The point behind 32 bytes, with y taken modulo P and any sign of x = 0, as lenient libraries do; None if none."""
    number = int.from_bytes(encoded, "little")
    sign, y = number >> 255, number % 2**255 % P
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * ROOT % P
    if x * x % P != square:
        return None
    return (x if x % 2 == sign else -x % P, y)


def add(one, two):
    """The sum of two points, by the complete formula."""
    (a, b), (c, d) = one, two
    cross = D * a * b * c * d % P
    return (a * d + b * c) * pow(1 + cross, -1, P) % P, (b * d + a * c) * pow(1 - cross, -1, P) % P


def multiply(scalar, point):
    """The point, `scalar` times."""
    total = NEUTRAL
    while scalar:
        if scalar & 1:
            total = add(total, point)
        point, scalar = add(point, point), scalar >> 1
    return total


def is_small(point):
    """Whether 8 times the point is the neutral one."""
    return multiply(8, point) == NEUTRAL


def small_points():
    """The 8 points of order 1, 2, 4 and 8: the curve's order times any point is one, and one of order 8 makes all."""
    y = 2
    while True:
        point = decode(y.to_bytes(32, "little"))
        candidate = multiply(ORDER, point) if point else NEUTRAL
        if multiply(4, candidate) != NEUTRAL:
            return [multiply(times, candidate) for times in range(8)]
        y += 1


def encodings(point):
    """Every 32 bytes that a lenient decoder takes for the point."""
    x, y = point
    signs = (0, 1) if x == 0 else (x % 2,)
    heights = [y, y + P] if y + P < 2**255 else [y]
    return [(height + (sign << 255)).to_bytes(32, "little") for height in heights for sign in signs]


def montgomery(point):
    """The u of the X25519 point that belongs to an Edwards point."""
    _, y = point
    return (1 + y) * pow(1 - y, -1, P) % P if y != 1 else 0
