"""Tags by which users of Stable-Baselines3 and CleanRL know figures of ours: TensorBoard has them beside our own names."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rljob.telemetry.figures import number


@dataclass(frozen=True, slots=True)
class KnownTag:
    """A tag of another library: our ``figure``, times ``factor`` where the libraries differ in sign or in a half.

    ``beside``: another figure, without which the tag is left out, since ``figure`` would mean something else there.
    """

    tag: str
    figure: str
    factor: float = 1.0
    beside: str = ""


STABLE_BASELINES3: Final = (
    KnownTag("rollout/ep_rew_mean", "mean_return"),
    KnownTag("rollout/ep_len_mean", "mean_length_steps"),
    KnownTag("rollout/success_rate", "episode/is_success"),
    KnownTag("eval/mean_reward", "evaluation/mean"),
    KnownTag("eval/mean_ep_length", "evaluation/mean_length_steps"),
    KnownTag("eval/success_rate", "evaluation/episode/is_success"),
    KnownTag("time/fps", "steps_per_second"),
    KnownTag("time/total_timesteps", "steps_total"),
    KnownTag("train/learning_rate", "learning_rate"),
    KnownTag("train/loss", "loss"),
    KnownTag("train/policy_gradient_loss", "policy_loss", beside="value_loss"),
    KnownTag("train/value_loss", "value_loss", factor=2.0),
    KnownTag("train/entropy_loss", "entropy", factor=-1.0, beside="value_loss"),
    KnownTag("train/approx_kl", "policy_kl"),
    KnownTag("train/clip_fraction", "clip_share"),
    KnownTag("train/explained_variance", "explained_variance"),
    KnownTag("train/actor_loss", "policy_loss", beside="critic_loss"),
    KnownTag("train/critic_loss", "critic_loss"),
    KnownTag("train/ent_coef", "temperature"),
)
CLEANRL: Final = (
    KnownTag("global_step", "steps_total"),
    KnownTag("charts/episodic_return", "mean_return"),
    KnownTag("charts/episodic_length", "mean_length_steps"),
    KnownTag("charts/SPS", "steps_per_second"),
    KnownTag("charts/learning_rate", "learning_rate"),
    KnownTag("eval/episodic_return", "evaluation/mean"),
    KnownTag("losses/policy_loss", "policy_loss", beside="value_loss"),
    KnownTag("losses/value_loss", "value_loss"),
    KnownTag("losses/entropy", "entropy", beside="value_loss"),
    KnownTag("losses/approx_kl", "policy_kl"),
    KnownTag("losses/clipfrac", "clip_share"),
    KnownTag("losses/explained_variance", "explained_variance"),
    KnownTag("losses/actor_loss", "policy_loss", beside="critic_loss"),
    KnownTag("losses/qf_loss", "critic_loss"),
    KnownTag("losses/q_values", "q_taken"),
    KnownTag("losses/alpha", "temperature"),
)


def known_tags(figures: Mapping[str, float]) -> dict[str, float]:
    """What the others would call those of ``figures`` that they have."""
    return {
        each.tag: value * each.factor
        for each in (*STABLE_BASELINES3, *CLEANRL)
        if (value := number(figures.get(each.figure))) is not None and (not each.beside or each.beside in figures)
    }
