"""Plans of short trainings, and the bits of a run."""

from halfulp.lab.train.loop import Plan

SR = "e5m2*e5m2+e6m5.sr10"


def plan(network="lenet5", text=SR, **changes):
    given = {"policies": (("*", text),), "seed": 0, "epochs": 1, "batch": 2, "rate": 0.01}
    return Plan(**({"network": network} | given | changes))


def bits(run):
    return {name: value.clone() for name, value in run.model.state_dict().items()}
