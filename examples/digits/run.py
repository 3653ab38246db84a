"""Train the network, and compare its scores with those of the engine in Verilator.

    python -m examples.digits.run --policy examples/digits/policy.toml

The exit code is 1 if a bit differs.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from halfulp import golden
from halfulp.golden import nn
from halfulp.lab.train.small import digits
from halfulp.sim.model import CompiledModel, pack, unpack

from .engine import Engine
from .model import CLASSES, Network, train

POLICY = Path(__file__).with_name("policy.toml")


@torch.no_grad()
def expected(network: Network, policy: nn.Policy, images: Tensor) -> Tensor:
    """Return the scores of images by the converted network."""
    scores: Tensor = nn.convert(network, policy).model(images)
    return scores


def computed(engine: Engine, images: Tensor) -> tuple[Tensor, int]:
    """Return the scores of images by the engine, and its clock cycles for an image."""
    codes, count = engine.encode(images).reshape(-1, 1).numpy().astype(np.uint64), len(images) * CLASSES
    widths = [engine.mac.o.width, 1]
    model = CompiledModel.of_streams(engine)
    try:
        passed = model.stream({"image": pack(codes, [engine.mac.a.width])}, {"score": count}, limit=len(images) << 13)
    finally:
        model.close()
    if passed.given["score"] != count or passed.faults["score"]:
        raise RuntimeError(f"the engine gave {passed.given['score']} of {count} scores: {passed}")
    scores = unpack(passed.words["score"], widths)[:, 0].astype(np.int64)
    real = golden.decode(torch.from_numpy(scores), engine.mac.o).float().unflatten(0, (-1, CLASSES))
    return real, passed.cycles["score"] // len(images)


def mismatches(one: Tensor, other: Tensor) -> int:
    """Return the number of scores whose bits differ."""
    return int((one.view(torch.int32) != other.view(torch.int32)).sum())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", type=Path, default=POLICY)
    parser.add_argument("--channels", type=int, default=8, help="channels of the convolution, and lanes; default: 8")
    parser.add_argument("--images", type=int, default=360, help="test images; default: 360, which are all")
    given = parser.parse_args()
    _, (images, classes) = digits()
    for name, most in (("channels", 64), ("images", len(images))):
        if not 1 <= getattr(given, name) <= most:
            parser.error(f"--{name} is 1 to {most}, not {getattr(given, name)}")
    try:
        rules = nn.rules(given.policy)
        if len(rules) > 1:
            raise ValueError(f"the lanes have one format, but {given.policy.name} has policies of layers")
        network = train(given.channels)
        engine = Engine(network, rules["*"])
        images, classes = images[: given.images], classes[: given.images]
        scores = expected(network, rules["*"], images)
    except (ValueError, TypeError, OSError) as error:
        parser.error(str(error))
    own, cycles = computed(engine, images)
    accuracies = [float((each.argmax(1) == classes).float().mean()) * 100 for each in (network(images), scores, own)]
    print("accuracy: {:.1f} % in FP32, {:.1f} % under the policy, {:.1f} % in the engine".format(*accuracies))
    wrong = mismatches(scores, own)
    print(f"{wrong} of {own.numel()} scores differ; {cycles} cycles for an image")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
