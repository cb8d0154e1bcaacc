import pytest

from torchledger.machine import Cluster, MachineError, generic_cpu


def test_a_generic_cpu_is_cores_times_clock_times_a_core():
    """An AVX2 core does two 256-bit multiply-adds a cycle: 2 x 8 x 2 = 32 fp32 FLOP."""
    cpu = generic_cpu(8, 3.0e9, name="Some CPU")
    assert cpu.peak("fp32") == pytest.approx(8 * 3.0e9 * (2 * 8 * 2))
    assert (cpu.name, cpu.kind, cpu.num_cores) == ("Some CPU", "cpu", 8)


def test_a_generic_cpu_is_never_sure():
    """Arithmetic on a made-up core is no datasheet."""
    assert generic_cpu(1, 1e9).confidence != "high"


def test_what_is_not_given_is_unknown():
    """Memory and bandwidth are the caller's to know."""
    assert (generic_cpu(1, 1e9).memory_bytes_nominal, generic_cpu(1, 1e9).memory_bandwidth) == (None, None)
    cpu = generic_cpu(2, 2e9, memory_bytes=16 * 2**30, memory_bandwidth=20e9)
    assert (cpu.memory_bytes_reported, cpu.memory_bandwidth) == (16 * 2**30, 20e9)


def test_a_generic_cpu_is_a_cluster_of_one():
    """It can stand wherever a chip can."""
    assert Cluster.of(generic_cpu(2, 2e9), 1).num_islands == 1


@pytest.mark.parametrize(("num_cores", "clock_hz"), [(0, 1e9), (1, 0.0), (1, float("nan"))])
def test_a_cpu_has_cores_and_a_clock(num_cores, clock_hz):
    """Nothing times something is a mistake of the caller."""
    with pytest.raises(MachineError):
        generic_cpu(num_cores, clock_hz)
