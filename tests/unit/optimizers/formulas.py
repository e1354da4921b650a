"""Reference implementations of LARS and LAMB in NumPy and float64, written from the papers' algorithms."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

SHAPES = {"matrix": (4, 3), "kernel": (2, 3, 2, 2), "bias": (3,), "zeros": (3, 2)}
"""The last one is initialized to zeros."""
RATES = [0.5, 0.5, 0.2, 0.1, 0.4]
"""One for each step: only a changing value reveals its place in the formula."""
LARS = {"momentum": 0.9, "weight_decay": 0.02, "trust_coefficient": 0.01}
LAMB = {"beta1": 0.8, "beta2": 0.95, "eps": 1e-3, "weight_decay": 0.05}

Weights = dict[str, np.ndarray]


def start() -> Weights:
    generator = np.random.default_rng(0)
    weights = {name: generator.normal(size=shape) for name, shape in SHAPES.items()}
    return {**weights, "zeros": np.zeros(SHAPES["zeros"])}


def gradients() -> Iterator[Weights]:
    """Of every step."""
    generator = np.random.default_rng(1)
    for _ in RATES:
        yield {name: generator.normal(size=shape) for name, shape in SHAPES.items()}


def after(step: Callable[..., tuple[np.ndarray, dict]], options: dict[str, float]) -> Weights:
    """The weights after all steps."""
    weights, states = start(), {name: {} for name in SHAPES}
    for number, (rate, given) in enumerate(zip(RATES, gradients(), strict=True), 1):
        for name, w in weights.items():
            weights[name], states[name] = step(w, given[name], states[name], number, rate, **options)
    return weights


def lars_step(w, g, state, number, rate, momentum, weight_decay, trust_coefficient):
    """arXiv 1708.03888, Algorithm 1 and equation 6."""
    local = 1.0
    if w.ndim < 2:
        weight_decay = 0.0
    elif np.linalg.norm(w) > 0:
        size = np.linalg.norm(w)
        local = trust_coefficient * size / (np.linalg.norm(g) + weight_decay * size)
    v = momentum * state.get("v", 0.0) + rate * local * (g + weight_decay * w)
    return w - v, {"v": v}


def lamb_step(w, g, state, number, rate, beta1, beta2, eps, weight_decay):
    """arXiv 1904.00962, Algorithm 2, with the identity as the scaling function of the norm."""
    m = beta1 * state.get("m", 0.0) + (1 - beta1) * g
    v = beta2 * state.get("v", 0.0) + (1 - beta2) * g**2
    r = (m / (1 - beta1**number)) / (np.sqrt(v / (1 - beta2**number)) + eps)
    ratio = 1.0
    if w.ndim > 1:
        r = r + weight_decay * w
        ratio = np.linalg.norm(w) / np.linalg.norm(r) if np.linalg.norm(w) > 0 else 1.0
    return w - rate * ratio * r, {"m": m, "v": v}
