"""Rules of ``spec.monitoring``."""

from __future__ import annotations

from rljob.api.cluster import DATA_PORTS, MonitoringSpec
from rljob.api.rule import Outcome, rule

_TAKEN = f"allowed: a port outside {DATA_PORTS[0]} to {DATA_PORTS[-1]}; on those, pods send experience and weights"


@rule(
    MonitoringSpec,
    "metricsPort",
    cel=f"self.metricsPort < {DATA_PORTS[0]} || self.metricsPort > {DATA_PORTS[-1]}",
    message=_TAKEN,
)
def a_port_of_its_own(monitoring: MonitoringSpec) -> Outcome:
    return _TAKEN if monitoring.metrics_port in DATA_PORTS else None
