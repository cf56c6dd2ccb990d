"""The published hyper-parameters for Atari games. Both play Pong unless another game is written: ``environment.id``."""

from __future__ import annotations

from rljob.api.presets.preset import Preset

# What differs from the paper: actors fetch weights every publishInterval updates, not every 400 frames; the ladder of epsilons is
# over environments, of which an actor has several; the gradient of the two streams is not scaled down where they meet. Left to
# the hardware, as in the paper: as many samples an insert as it gave (19 batches for 12,500 transitions a second: 0.8).
APEX_ATARI = Preset(
    name="ApeXAtari",
    purpose="Ape-X DQN as published for Atari games, for a GPU and many actors",
    expected="not measured here",
    time="hours to days",
    frames="200 million, then it ends",
    source="Horgan et al. 2018, section 3.1 and appendix C; the learning rate is .00025 / 4",
    spec={
        "algorithm": {
            "type": "ApeXDQN",
            "gamma": 0.99,
            "nStep": 3,
            "batchSize": 512,
            "optimizer": "CentredRMSProp",
            "learningRate": 6.25e-5,
            "rmspropDecay": 0.95,
            "optimizerEpsilon": 1.5e-7,
            "gradientClipNorm": 40.0,
            "targetUpdateInterval": 2500,
            "network": "Nature",
            "chunkLength": 50,
            "apeXDQN": {
                "double": True,
                "dueling": True,
                "loss": "MSE",
                "epsilonBase": 0.4,
                "epsilonExponent": 7.0,
            },
        },
        "environment": {"id": "ALE/Pong-v5"},
        "replay": {
            "capacity": 2_000_000,
            "prioritization": {"exponent": 0.6, "importance": 0.4},
            "rateLimiter": {"minSize": 50_000},
        },
        "successPolicy": {"rawFrames": 200_000_000},
    },
    of_one_environment=False,
)

# The decay of .99 is not in the table but in the code that came with the paper. What differs: frame stacks instead of a memory;
# RMSProp's mean of squares begins at 0, in that code at 1, so that the first hundred updates take longer steps.
IMPALA_ATARI = Preset(
    name="ImpalaAtari",
    purpose="IMPALA as published for Atari games: V-trace, the residual network, summed losses, RMSProp; judged by the "
    "policy's own draws, without sticky actions",
    expected="not measured here",
    time="hours to days",
    frames="200 million, over which the learning rate falls to 0; then it ends",
    source="Espeholt et al. 2018, table G.1",
    spec={
        "algorithm": {
            "type": "IMPALA",
            "gamma": 0.99,
            "unrollLength": 20,
            "batchSize": 32,
            "valueCost": 0.5,
            "entropyCost": 0.01,
            "optimizer": "RMSProp",
            "learningRate": 6e-4,
            "learningRateFinal": 0.0,
            "learningRateDecaySteps": 50_000_000,
            "rmspropDecay": 0.99,
            "rmspropMomentum": 0.0,
            "optimizerEpsilon": 0.01,
            "gradientClipNorm": 40.0,
            "network": "Deep",
            "hiddenUnits": 256,
            "recurrent": "None",
            "evaluationTemperature": 1.0,  # actions are drawn as the policy would draw them
            "impala": {
                "rhoClip": 1.0,
                "cClip": 1.0,
                "lossReduction": "Sum",
            },
        },
        "environment": {"id": "ALE/Pong-v5", "atari": {"lifeLoss": "EndsEpisode"}},
        "actors": {"envsPerActor": 16},
        "successPolicy": {"rawFrames": 200_000_000},
    },
    of_one_environment=False,
)
