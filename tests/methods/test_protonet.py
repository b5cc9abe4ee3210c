import numpy as np
import torch
from sklearn.neighbors import NearestCentroid
from torch import nn
from toy_tasks import VECTORS, episode

from polyshot.methods.protonet import ProtoNet


def test_decisions_are_those_of_the_nearest_centroid() -> None:
    task = episode(VECTORS, 5, [1, 2, 3, 4, 5], n_query=40)
    ours = ProtoNet(VECTORS).adapt(task.support, task.n_way)(task.query.x).log_probs.argmax(-1)
    theirs = NearestCentroid().fit(task.support.x.numpy(), task.support.y.numpy()).predict(task.query.x.numpy())
    assert ours.tolist() == theirs.tolist()
    assert len(set(ours.tolist())) == 5


def test_probabilities_are_those_of_equal_gaussians_around_the_centroids() -> None:
    task = episode(VECTORS, 3, [1, 2, 3])
    backbone = nn.Linear(12, 4)
    log_probs, scores, *_ = ProtoNet(VECTORS, backbone).adapt(task.support, task.n_way)(task.query.x)
    with torch.no_grad():
        x, s = backbone(task.query.x), backbone(task.support.x)
    centres = torch.stack([s[task.support.y == c].mean(0) for c in range(3)])
    gaussian = torch.distributions.Normal(centres, np.sqrt(0.5))  # variance 1/2: exp(-|x - c|^2)
    torch.testing.assert_close(log_probs, gaussian.log_prob(x[:, None]).sum(-1).log_softmax(-1), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(scores, -(torch.cdist(x, centres) ** 2), rtol=1e-4, atol=1e-4)


def test_the_loss_is_the_cross_entropy_of_the_queries() -> None:
    task = episode(VECTORS, 3, [1, 2, 3])
    method = ProtoNet(VECTORS)
    log_probs = method.adapt(task.support, task.n_way)(task.query.x).log_probs
    expected = -log_probs[range(len(task.query.y)), task.query.y].mean()
    torch.testing.assert_close(method.loss(task, np.random.default_rng(0)), expected)
