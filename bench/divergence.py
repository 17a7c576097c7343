# SPDX-License-Identifier: Apache-2.0
"""How far a language model's next tokens are from those of another: KL(want, ours) in nats, the share of the same choice, and
the ratio of perplexities."""
import dataclasses

import torch

ROWS = 128  # at a time, in float64


@dataclasses.dataclass(frozen=True)
class Divergence:
    kl: float
    top1: float
    ppl_ratio: float

    def __str__(self):
        return f"kl={self.kl:.5f} top1={self.top1:.3f} ppl_ratio={self.ppl_ratio:.4f}"


def divergence(want, ours, targets):
    """Means over the places of logits want[T, V] and ours[T, V] that have a target, which is the next token: targets[T - 1]."""
    kl, same, steps = [], [], []
    for at in range(0, len(targets), ROWS):
        a, b = (torch.log_softmax(x[at:at + ROWS][:len(targets) - at].double(), -1) for x in (want, ours))
        kl.append((a.exp() * (a - b)).sum(-1))
        same.append((a.argmax(-1) == b.argmax(-1)).double())
        steps.append((a - b).gather(-1, targets[at:at + ROWS, None]).flatten())
    kl, same, steps = (torch.cat(x).mean() for x in (kl, same, steps))
    return Divergence(kl.item(), same.item(), steps.exp().item())
