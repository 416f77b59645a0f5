"""The files for clusters are what KubeRay and Slurm can read, and call what there is."""

from __future__ import annotations

import re
import subprocess

import yaml

from tests.support.pages import ROOT

FOLDER = ROOT / "examples" / "fleet"
TARGETS = "tile-agent fleet run --targets targets.toml"


def test_the_job_for_kuberay_has_what_its_kind_needs() -> None:
    job = yaml.safe_load((FOLDER / "rayjob.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    spec = job["spec"]
    assert f"{TARGETS} --address auto --yes" in spec["entrypoint"]
    head = spec["rayClusterSpec"]["headGroupSpec"]
    assert head["rayStartParams"] == {"num-cpus": "0"}, "runs go to workers"
    (group,) = spec["rayClusterSpec"]["workerGroupSpecs"]
    assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    for each in (head, group):
        (container,) = each["template"]["spec"]["containers"]
        limits = container["resources"]["limits"]
        assert limits == container["resources"]["requests"]
        assert ("nvidia.com/gpu" in limits) == (each is group)
    mounts = {each["name"] for each in head["template"]["spec"]["containers"][0]["volumeMounts"]}
    assert mounts == {each["name"] for each in head["template"]["spec"]["volumes"]}


def test_the_script_for_slurm_is_one() -> None:
    path = FOLDER / "fleet.sbatch"
    subprocess.run(["bash", "-n", path], check=True)
    text = path.read_text()
    behind = text[text.index("\nset -") :]
    assert "#SBATCH" not in behind, "Slurm reads them before the first command alone"
    assert re.findall(r"fleet (run|resume|status)", behind) == ["status", "resume", "resume", "run"]
