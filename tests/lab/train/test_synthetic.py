"""Networks on a drawn citation graph and on sentences of a small language."""

import pytest
import torch

from halfulp import golden
from halfulp.lab.train import loop, synthetic
from halfulp.lab.train.user import network


def test_graph_has_the_sizes_of_cora():
    model, train, test, _, _ = synthetic.graph()
    papers = sum(synthetic.TOPICS)
    assert (papers, len(train[0]), len(test[0])) == (2708, 140, 1000)
    assert train[1].bincount().tolist() == [20] * 7
    assert not set(train[0].tolist()) & set(test[0].tolist())
    # Both directions of each citation, and one of each paper to itself.
    assert len(model.source) == len(model.target) == 2 * synthetic.CITATIONS + papers
    known = torch.full((papers,), -1)
    for nodes, topics in (train, test):
        known[nodes] = topics
    ends = known[torch.stack((model.source, model.target))[:, : synthetic.CITATIONS]]
    both = ends[:, (ends >= 0).all(0)]
    assert 0.75 < (both[0] == both[1]).double().mean() < 0.87


def test_graph_scores_are_those_of_its_matrices():
    """Kipf and Welling: A relu(A X W) V, with A normalised by the degrees of its rows and columns."""
    model, (papers, _), *_ = synthetic.graph()
    count = len(model.words) // synthetic.WORDS
    adjacency = torch.zeros(count, count, dtype=torch.float64)
    adjacency.index_put_((model.target, model.source), torch.ones(len(model.source), dtype=torch.float64), True)
    degree = adjacency.sum(1).rsqrt()
    adjacency = degree[:, None] * adjacency * degree
    features = torch.zeros(count, synthetic.VOCABULARY, dtype=torch.float64)
    features[model.papers, model.words] = 1
    model = model.double()
    model.share = degree[model.source][:, None] * degree[model.target][:, None]
    expected = adjacency @ model.out((adjacency @ (features @ model.of_words)).relu())
    torch.testing.assert_close(model(papers), expected[papers])


def test_sentences_follow_the_grammar():
    model, train, test, _, _ = synthetic.translation()
    inputs, target = (torch.cat(pair) for pair in zip(train, test, strict=True))
    assert len(inputs) == len({tuple(row) for row in inputs[:, :4].tolist()}) == 2048
    subject, verb, adjective, noun = (inputs[:, :4] - torch.tensor([0, 8, 16, 20])).unbind(1)
    assert torch.equal(target[:, :2], torch.stack((subject, 8 + noun), 1))
    assert torch.equal(target[:, 2], 16 + 2 * adjective + noun % 2)
    assert torch.equal(target[:, 3], 24 + 2 * verb + subject % 2)
    assert torch.equal(inputs[:, 5:], target[:, :-1])
    assert model(inputs[:3]).shape == (3, 4, 40)


def test_text_has_frequent_words_and_kinds_with_few_successors():
    inputs, targets = synthetic.text(512, 400, 35)
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    counts = torch.bincount(inputs.flatten(), minlength=512)
    assert counts[:16].sum() > counts[256:].sum()
    kinds = torch.zeros(synthetic.KINDS, 512).index_put_(
        (inputs.flatten() % synthetic.KINDS, targets.flatten()), torch.ones(()), accumulate=True
    )
    # Half of the successors of each kind are few words, and not those of the others.
    few = kinds.sort(1, descending=True).values[:, :32].sum(1) / kinds.sum(1)
    assert few.mean() > 0.5
    assert len(kinds.argmax(1).unique()) > 8


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["graph", "translation", "words"])
def test_emulated_step_lowers_the_loss(name):
    own = network(f"halfulp.lab.train.synthetic:{name}")
    data = own.load(None).limited(64)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = own.build(data)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before, _ = loop.tested(model, data, own.loss)
    with golden.emulate("bf16*bf16+fp32.rn, elementwise=bf16.rn, optimizer=fp32.rn", strict=True):
        for _ in range(2):
            optimizer.zero_grad()
            own.loss(model(data.train[0]), data.train[1]).backward()
            optimizer.step()
    after, accuracy = loop.tested(model, data, own.loss)
    assert after < before
    assert 0 <= accuracy <= 100
