"""Named hyper-parameter sets, so that a manifest can say "the published values" in one line and change one of them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        # Horgan et al. 2018, "Distributed Prioritized Experience Replay", appendix C; the learning rate is .00025 / 4.
        "ApeXAtari": {
            "gamma": 0.99,
            "n_step": 3,
            "batch_size": 512,
            "optimizer": "RMSProp",
            "learning_rate": 6.25e-5,
            "rmsprop_decay": 0.95,
            "adam_epsilon": 1.5e-7,
            "gradient_clip_norm": 40.0,
            "target_update_interval": 2500,
            "double": True,
            "dueling": True,
            "network": "Nature",
            "loss": "Huber",
            "epsilon_base": 0.4,
            "epsilon_exponent": 7.0,
            "chunk_length": 50,
        },
        # 42x42 centred Pong on two cores: a small normalised network, long returns, and a moving average for
        # evaluations.
        "PongQuickstart": {
            "gamma": 0.99,
            "n_step": 10,
            "batch_size": 128,
            "optimizer": "Adam",
            "learning_rate": 1e-3,
            "learning_rate_final": 3e-4,
            "learning_rate_decay_steps": 300_000,
            "adam_epsilon": 1e-6,
            "gradient_clip_norm": 10.0,
            "target_update_interval": 200,
            "double": True,
            "dueling": True,
            "network": "Compact",
            "hidden_units": 128,
            "layer_norm": True,
            "loss": "Huber",
            "epsilon_base": 0.4,
            "epsilon_exponent": 7.0,
            "evaluation_epsilon": 0.01,
            "evaluation_weights_decay": 0.998,
            "chunk_length": 50,
            "publish_interval": 10,
            "precision": "FP32",
        },
        # Four numbers and two actions: a small MLP on one core, tens of thousands of steps.
        "CartPole": {
            "gamma": 0.99,
            "n_step": 3,
            "batch_size": 128,
            "optimizer": "Adam",
            "learning_rate": 1e-3,
            "learning_rate_final": 1e-4,
            "learning_rate_decay_steps": 60_000,
            "adam_epsilon": 1e-8,
            "gradient_clip_norm": 10.0,
            "target_update_interval": 200,
            "double": True,
            "dueling": True,
            "network": "MLP",
            "hidden_units": 128,
            "loss": "Huber",
            "epsilon_base": 0.4,
            "epsilon_exponent": 7.0,
            "evaluation_epsilon": 0.0,
            "evaluation_weights_decay": 0.99,
            "chunk_length": 20,
            "publish_interval": 10,
        },
    }
)
