"""MFU and HFU: FLOPs of a step over its seconds and a peak, each under a convention that is told with it."""

from dataclasses import dataclass

__all__ = ["Yardstick"]


@dataclass(frozen=True, slots=True)
class Yardstick:
    """What utilisation is measured by. What is not known gives no utilisation: nothing, never 0.

    Attributes:
        model_flops: FLOPs of one step on one device, attention counted in full, nothing recomputed: MFU as PaLM
            defines it (arXiv:2204.02311, appendix B).
        causal_flops: the same with only the pairs of tokens that the mask lets see each other.
        hardware_flops: what the kernels execute, recomputed forward passes included: HFU.
        peak_flops_per_s: of that device. Where devices share a step evenly, utilisation of one is that of all.
        convention: numerator and denominator in words.
    """

    model_flops: float | None = None
    causal_flops: float | None = None
    hardware_flops: float | None = None
    peak_flops_per_s: float | None = None
    convention: str = ""

    def mfu(self, seconds: float) -> float | None:
        """Model FLOPs utilisation of a step that took `seconds`.

        >>> Yardstick(model_flops=6e12, peak_flops_per_s=4e12).mfu(3.0)
        0.5
        """
        return self._share(self.model_flops, seconds)

    def mfu_causal(self, seconds: float) -> float | None:
        """Model FLOPs utilisation with causal attention counted as what it is."""
        return self._share(self.causal_flops, seconds)

    def hfu(self, seconds: float) -> float | None:
        """Hardware FLOPs utilisation of a step that took `seconds`."""
        return self._share(self.hardware_flops, seconds)

    def _share(self, flops: float | None, seconds: float) -> float | None:
        if flops is None or not self.peak_flops_per_s:
            return None
        return flops / seconds / self.peak_flops_per_s
