"""Counter-based random numbers as scalar functions: Threefry-4x32 with 13 rounds, and what is drawn from its words.

Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. Additions, rotations and
exclusive-ors of 32-bit words only, so that it fills SIMD lanes on a CPU and compiles for CUDA. See
:mod:`temporeal.sim.compiler.scalar_functions` for how these functions are bound to a target: ``word`` truncates to 32
bits, ``bits_of`` and ``float_of`` reinterpret.
"""

from __future__ import annotations

import math
import struct

PARITY = 0x1BD11BDA
MASK = 0xFFFFFFFF
SHIFT_24 = 8  # a 32-bit word's upper 24 bits are what a float32 in [0, 1) can hold
ULP_24 = 2.0**-24
HALF_ULP_24 = 2.0**-25
MIDDLE_12 = 1.5 - 2.0**-13  # of the numbers in [1, 2) with 12 bits, taken at the middle of their intervals

ZERO = 0.0
ONE = 1.0
TWO = 2.0
HALF = 0.5
MINUS_TWO = -2.0

# log(m) for m in [sqrt(1/2), sqrt(2)), polynomial in m - 1; S. Moshier, Cephes, logf
LOG_HIGH = 0.693359375
LOG_LOW = -2.12194440e-4
LOG_0, LOG_1, LOG_2 = 7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1
LOG_3, LOG_4, LOG_5 = -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1
LOG_6, LOG_7, LOG_8 = 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1

# sin(pi/2 x) = x (S0 + S1 x^2 + ...), cos(pi/2 x) = 1 + C1 x^2 + ..., |x| <= 1/2: Taylor, error below 4e-9
SIN_0 = math.pi / 2
SIN_1 = -((math.pi / 2) ** 3) / 6
SIN_2 = (math.pi / 2) ** 5 / 120
SIN_3 = -((math.pi / 2) ** 7) / 5040
SIN_4 = (math.pi / 2) ** 9 / 362880
COS_1 = -((math.pi / 2) ** 2) / 2
COS_2 = (math.pi / 2) ** 4 / 24
COS_3 = -((math.pi / 2) ** 6) / 720
COS_4 = (math.pi / 2) ** 8 / 40320

# -log(1 - d/2) = d (COARSE_0 + COARSE_1 d + ...) for 0 < d <= 1; sine and cosine as above: fits with errors below
# 3e-5, 3e-6 and 1e-5
LN_2 = math.log(2)
COARSE_0, COARSE_1, COARSE_2, COARSE_3, COARSE_4 = 0.500026438, 0.123808894, 0.0501586564, -0.00470816862, 0.0238349131
COARSE_SIN_0, COARSE_SIN_1, COARSE_SIN_2 = 1.57079407, -0.64580168, 0.07795441
COARSE_COS_0, COARSE_COS_1, COARSE_COS_2 = 0.99999001, -1.23297953, 0.24594551

SCALAR_FUNCTIONS = (
    "select",
    "rotate",
    "inject",
    "four_rounds_a",
    "four_rounds_b",
    "threefry",
    "unit",
    "open_unit",
    "log",
    "turn",
    "normal_pair",
    "coarse_normal_pair",
)


def word(x):
    """``x`` modulo 2^32 (replaced by the target's 32-bit unsigned type)."""
    return x & MASK


def signed(x):
    """``x`` as a signed 32-bit number (replaced by the target's type)."""
    return (x + 0x80000000) % 0x100000000 - 0x80000000


def bits_of(x):
    """The 32 bits of a float32 as an integer."""
    return struct.unpack("<i", struct.pack("<f", x))[0]


def float_of(i):
    """The float32 whose bits are ``i``."""
    return struct.unpack("<f", struct.pack("<i", i))[0]


def real(x):
    """An integer as a float (replaced by the target's float type)."""
    return float(x)


def select(condition, a, b):
    """``a`` where the condition holds, else ``b``."""
    return a if condition else b


def rotate(x, n):
    """``x`` rotated left by ``n`` bits."""
    return word((x << n) | (x >> (32 - n)))


def four_rounds_a(x0, x1, x2, x3):
    """Rounds 0 to 3 of each eight; rotations from the paper's table 2."""
    x0 = word(x0 + x1)
    x1 = rotate(x1, 10) ^ x0
    x2 = word(x2 + x3)
    x3 = rotate(x3, 26) ^ x2
    x0 = word(x0 + x3)
    x3 = rotate(x3, 11) ^ x0
    x2 = word(x2 + x1)
    x1 = rotate(x1, 21) ^ x2
    x0 = word(x0 + x1)
    x1 = rotate(x1, 13) ^ x0
    x2 = word(x2 + x3)
    x3 = rotate(x3, 27) ^ x2
    x0 = word(x0 + x3)
    x3 = rotate(x3, 23) ^ x0
    x2 = word(x2 + x1)
    x1 = rotate(x1, 5) ^ x2
    return x0, x1, x2, x3


def four_rounds_b(x0, x1, x2, x3):
    """Rounds 4 to 7 of each eight."""
    x0 = word(x0 + x1)
    x1 = rotate(x1, 6) ^ x0
    x2 = word(x2 + x3)
    x3 = rotate(x3, 20) ^ x2
    x0 = word(x0 + x3)
    x3 = rotate(x3, 17) ^ x0
    x2 = word(x2 + x1)
    x1 = rotate(x1, 11) ^ x2
    x0 = word(x0 + x1)
    x1 = rotate(x1, 25) ^ x0
    x2 = word(x2 + x3)
    x3 = rotate(x3, 10) ^ x2
    x0 = word(x0 + x3)
    x3 = rotate(x3, 18) ^ x0
    x2 = word(x2 + x1)
    x1 = rotate(x1, 20) ^ x2
    return x0, x1, x2, x3


def inject(x0, x1, x2, x3, a, b, c, d, i):
    """Key words ``a`` to ``d`` and the injection's number added."""
    return word(x0 + a), word(x1 + b), word(x2 + c), word(x3 + d + i)


def threefry(k0, k1, k2, k3, c0, c1, c2, c3):
    """Four random 32-bit words of key ``k`` and counter ``c``: Threefry-4x32 with 13 rounds."""
    k4 = word(PARITY ^ k0 ^ k1 ^ k2 ^ k3)
    x0, x1, x2, x3 = inject(c0, c1, c2, c3, k0, k1, k2, k3, 0)
    x0, x1, x2, x3 = four_rounds_a(x0, x1, x2, x3)
    x0, x1, x2, x3 = inject(x0, x1, x2, x3, k1, k2, k3, k4, 1)
    x0, x1, x2, x3 = four_rounds_b(x0, x1, x2, x3)
    x0, x1, x2, x3 = inject(x0, x1, x2, x3, k2, k3, k4, k0, 2)
    x0, x1, x2, x3 = four_rounds_a(x0, x1, x2, x3)
    x0, x1, x2, x3 = inject(x0, x1, x2, x3, k3, k4, k0, k1, 3)
    x0 = word(x0 + x1)
    x1 = rotate(x1, 6) ^ x0
    x2 = word(x2 + x3)
    x3 = rotate(x3, 20) ^ x2
    return x0, x1, x2, x3


def unit(w):
    """Uniform float in [0, 1) from a word: its upper 24 bits."""
    return real(word(w >> SHIFT_24)) * ULP_24


def open_unit(w):
    """Uniform float in (0, 1) from a word, for a logarithm."""
    return real(word(w >> SHIFT_24)) * ULP_24 + HALF_ULP_24


def log(x):
    """Natural logarithm of a normal positive float32 (relative error about 1e-7)."""
    i = signed(bits_of(x) - 0x3F3504F3)  # sqrt(1/2): brings the mantissa to [sqrt(1/2), sqrt(2))
    e = real(signed(i >> 23))
    f = float_of(signed((i & 0x7FFFFF) + 0x3F3504F3)) - ONE
    g = f * f
    p = LOG_0 * f + LOG_1
    p = p * f + LOG_2
    p = p * f + LOG_3
    p = p * f + LOG_4
    p = p * f + LOG_5
    p = p * f + LOG_6
    p = p * f + LOG_7
    p = p * f + LOG_8
    return e * LOG_HIGH + (f + (f * g * p + e * LOG_LOW - HALF * g))


def turn(w, fraction):
    """Cosine and sine of an angle uniform on the circle: a quadrant from the top two bits of ``w``.

    ``fraction`` in (-1/2, 1/2) is the place within the quadrant, in quadrants.
    """
    z = fraction * fraction
    s = (((SIN_4 * z + SIN_3) * z + SIN_2) * z + SIN_1) * z + SIN_0
    s = s * fraction
    c = (((COS_4 * z + COS_3) * z + COS_2) * z + COS_1) * z + ONE
    odd = word(w & 0x40000000) != 0
    late = word(w & 0x80000000) != 0
    a, b = select(odd, s, c), select(odd, c, s)
    return select(odd != late, -a, a), select(late, -b, b)


def normal_pair(w0, w1):
    """Two independent standard normal numbers from two words: Box and Muller 1958."""
    r = math.sqrt(MINUS_TWO * log(open_unit(w0)))
    c, s = turn(w1, (real(word((w1 >> 6) & 0xFFFFFF)) * ULP_24 + HALF_ULP_24) - HALF)
    return r * c, r * s


def coarse_normal_pair(w):
    """Two independent standard normal numbers from a word, for sensor noise; its lowest four bits are not used.

    The radius takes 16,384 values up to 4.56, the angle as many; both are good to 3e-5.
    """
    # u = an odd number / 2^15 = m 2^e, 1 <= m < 2
    i = signed(bits_of(real(word((w >> 17) | 1))) - 0x46800000)
    d = TWO - float_of(signed((i & 0x7FFFFF) | 0x3F800000))
    p = (((COARSE_4 * d + COARSE_3) * d + COARSE_2) * d + COARSE_1) * d + COARSE_0
    r = math.sqrt(p * d - LN_2 * real(signed(i >> 23)))  # of -log(u), which is positive for d > 0
    # an angle in the first quadrant, and a sign for each component: cos(pi/4 + a) = (cos a - sin a) / sqrt(2), and
    # that factor is left out of the radius
    a = float_of(signed((word(w << 6) & 0x7FF800) | 0x3F800000)) - MIDDLE_12
    z = a * a
    s = ((COARSE_SIN_2 * z + COARSE_SIN_1) * z + COARSE_SIN_0) * a
    c = (COARSE_COS_2 * z + COARSE_COS_1) * z + COARSE_COS_0
    x = r * (c - s)
    y = r * (c + s)
    return select(word(w & 0x20000) != 0, -x, x), select(word(w & 0x10) != 0, -y, y)
