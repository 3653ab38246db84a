"""Policies in files: rules, and changes by epoch and at plateaus."""

import pytest

from halfulp import golden
from halfulp.golden import nn
from tests.layers_by_hand import E5M2, SR


def test_policy_files_read_rules(tmp_path):
    path = tmp_path / "mixed.toml"
    path.write_text(f'mac = "{SR}"\nweights = "e5m2"\n[layers."0"]\nmac = "fp32"\n[layers."fc*"]\nbias = "sr3"\n')
    assert nn.rules(path) == {
        "0": nn.Policy.parse("fp32, weights=e5m2"),
        "fc*": nn.Policy.parse(f"{SR}, weights=e5m2, bias=sr3"),
        "*": nn.Policy.parse(f"{SR}, weights=e5m2"),
    }
    for text, sentence in (
        ("layers = 3", 'mixed.toml: layers must be tables, such as [layers."fc*"]'),
        ("max = 3", "mixed.toml: unknown key 'max' of a policy"),
        ("macs = 3", "mixed.toml: unknown key 'macs' of a policy: did you mean mac?"),
        ('[layer."fc*"]\nmac = "fp32"', 'mixed.toml: unknown table [layer]: expected [layers."PATTERN"]'),
        ("mac = 3", "mixed.toml: mac: expected the text of a unit"),
        ('mac = "mxfp4"', "mixed.toml: mac: mxfp4 is a format; a multiply-accumulate has three"),
        ("forward = 3", "mixed.toml: forward: expected the text of a unit"),
        ("mac =", "mixed.toml: invalid TOML: Invalid value"),
        ("mac = " + "[" * 5000, "mixed.toml: invalid TOML: lists and tables are nested more than 50 levels deep"),
        ("layers" + ".a" * 5000 + " = 1", "mixed.toml: invalid TOML: lists and tables are nested more than"),
    ):
        path.write_text(text)
        with pytest.raises((TypeError, ValueError)) as caught:
            nn.rules(path)
        assert str(caught.value).startswith(sentence)
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        nn.rules(str(tmp_path / "other.toml"))


def test_policy_files_change_policies_by_epoch(tmp_path):
    path = tmp_path / "changes.toml"
    path.write_text(
        f'mac = "{SR}"\n[layers.fc]\nbias = "sr3"\n[epochs.12]\nmac = "fp32"\n'
        f'[epochs.3]\nweights = "e5m2"\n[epochs.3.layers.fc]\nweights = "rn"\n[epochs.3.layers.new]\nbias = "ra"\n'
    )
    found = nn.PolicyFile.read(path)
    third = {"fc": f"{SR}, bias=sr3", "new": f"{SR}, weights=e5m2.rn, bias=ra", "*": f"{SR}, weights=e5m2.rn"}
    last = {name: text.replace(SR, "fp32") for name, text in third.items()}
    assert found.choice == {
        epoch: {name: nn.Policy.parse(text) for name, text in rules.items()}
        for epoch, rules in {0: {"fc": f"{SR}, bias=sr3", "*": SR}, 3: third, 12: last}.items()
    }
    assert str(found).startswith(f"fc: {SR}, bias=sr3; *: {SR}; after epoch 3: fc: ")
    with pytest.raises(ValueError, match="Schedule"):
        nn.rules(path)


def test_policy_files_change_policies_at_plateaus(tmp_path):
    path = tmp_path / "changes.toml"
    path.write_text(f'mac = "fp32"\npatience = 2\n[[plateaus]]\nmac = "{E5M2}"\n[[plateaus]]\nweights = "sr3"\n')
    schedule = nn.Schedule.of_file(golden.emulate("fp32"), path)
    found = [schedule.policy["*"]]
    for _ in range(5):
        schedule.step(1.0)
        found.append(schedule.policy["*"])
    assert list(map(str, found)) == ["fp32"] * 3 + [E5M2] * 2 + [f"{E5M2}, weights=sr3"]


@pytest.mark.parametrize(
    ("text", "keyword"),
    [
        ("[epochs.first]", "epochs"),
        ("[epochs.0]", "epochs"),
        ("epochs = 3", "epochs"),
        ("[plateaus]", "plateaus"),
        ("[epochs.3]\n[[plateaus]]", "not both"),
        ("patience = 3", "patience"),
        ("[epochs.3]\nno = 1", "no"),
        ("[epochs.3.layers]\nfc = 1", "layers"),
    ],
)
def test_policy_files_reject_bad_changes(tmp_path, text, keyword):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"bad.toml.*{keyword}"):
        nn.PolicyFile.read(path)
