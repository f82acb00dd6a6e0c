"""Averages of weights, one number at a time, in plain Python floats."""

import numpy as np


def moving_average(start, students, gamma_l):
    """The teacher after the local steps m = 1, 2, ... whose student weights are `students` (METHOD, step 4).

    w_ema = gamma w_ema + (1 - gamma) w_k with gamma = min(gamma_l, 1 - 1 / (1 + m)); integer buffers are the student's.
    """
    teacher = {name: np.array(value, dtype=object) for name, value in start.items()}
    for m, student in enumerate(students, start=1):
        gamma = min(gamma_l, 1 - 1 / (1 + m))
        for name, value in teacher.items():
            for position in np.ndindex(value.shape):
                new = student[name][position]
                if np.issubdtype(student[name].dtype, np.integer):
                    value[position] = int(new)
                else:
                    value[position] = gamma * float(value[position]) + (1 - gamma) * float(new)
    return {name: value.astype(start[name].dtype) for name, value in teacher.items()}


def weighted_mean(parts, samples):
    """sum_k n_k w_k / sum_k n_k of equally shaped arrays, entry by entry."""
    mean = np.empty(parts[0].shape)
    for position in np.ndindex(mean.shape):
        mean[position] = sum(n * float(part[position]) for part, n in zip(parts, samples, strict=True)) / sum(samples)
    return mean
