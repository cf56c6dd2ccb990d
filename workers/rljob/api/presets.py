"""Named hyper-parameter sets, so that a manifest can say "the published values" in one line and change one of them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

APEX_DQN_PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
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

IMPALA_PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        # Espeholt et al. 2018, "IMPALA", table G.1, with the residual network and frame stacks instead of a memory; the
        # learning rate falls to 0 over 200 million raw frames.
        "ImpalaAtari": {
            "gamma": 0.99,
            "unroll_length": 20,
            "batch_size": 32,
            "loss": "VTrace",
            "rho_clip": 1.0,
            "c_clip": 1.0,
            "value_cost": 0.5,
            "entropy_cost": 0.01,
            "loss_reduction": "Sum",
            "optimizer": "RMSProp",
            "learning_rate": 6e-4,
            "learning_rate_final": 0.0,
            "learning_rate_decay_steps": 50_000_000,
            "rmsprop_decay": 0.99,
            "rmsprop_momentum": 0.0,
            "optimizer_epsilon": 0.01,
            "gradient_clip_norm": 40.0,
            "network": "Deep",
            "hidden_units": 256,
            "recurrent": "None",
        },
        # 42x42 centred Pong on two cores: 2,048 steps a batch, six epochs of eight minibatches, newer weights inside an
        # unroll.
        "PongClippedSurrogate": {
            "gamma": 0.99,
            "unroll_length": 128,
            "batch_size": 16,
            "loss": "ClippedSurrogate",
            "gae_lambda": 0.95,
            "clip_range": 0.2,
            "normalize_advantages": True,
            "epochs": 6,
            "minibatches": 8,
            "value_cost": 1.0,
            "entropy_cost": 0.01,
            "loss_reduction": "Mean",
            "optimizer": "Adam",
            "learning_rate": 1.5e-3,
            "learning_rate_final": 2e-4,
            "learning_rate_decay_steps": 400_000,
            "optimizer_epsilon": 1e-5,
            "gradient_clip_norm": 0.5,
            "network": "Compact",
            "hidden_units": 128,
            "orthogonal_init": True,
            "recurrent": "None",
            "weights_refresh_steps": 8,
            "publish_interval": 8,
            "evaluation_temperature": 0.5,
            "precision": "FP32",
            "prefetch_batches": 1,
        },
        # Four numbers and two actions: a small MLP on one core.
        "CartPoleImpala": {
            "gamma": 0.99,
            "unroll_length": 20,
            "batch_size": 16,
            "loss": "VTrace",
            "epochs": 1,
            "minibatches": 1,
            "value_cost": 0.5,
            "entropy_cost": 0.01,
            "loss_reduction": "Mean",
            "optimizer": "Adam",
            "learning_rate": 1e-3,
            "optimizer_epsilon": 1e-5,
            "gradient_clip_norm": 0.5,
            "network": "MLP",
            "hidden_units": 64,
            "orthogonal_init": True,
            "recurrent": "None",
            "evaluation_temperature": 0.0,
            "precision": "FP32",
        },
    }
)
