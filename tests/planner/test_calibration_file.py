import pytest

from torchledger.machine import get
from torchledger.planner.calibration import fit
from torchledger.planner.calibration_file import constant_range, fitted_to_toml, read_fitted
from torchledger.planner.constants import Constants
from torchledger.planner.errors import PlanError
from torchledger.planner.likeness import NUM_FEATURES

H100 = get("h100")
START = Constants(matmul_share=0.9)


def predict_of(work_s, host_ops):
    """Seconds that fall as matmuls get faster, and rise with the host's work."""
    return lambda constants: work_s / constants.matmul_share + host_ops * constants.host_s


@pytest.fixture
def fitted():
    """Three rows of a cluster whose matmuls reach 0.8 of what they should."""
    truth = Constants(matmul_share=0.8)
    predicts = [predict_of(1.0, 100), predict_of(2.0, 50), predict_of(5.0, 1000)]
    return fit([(each, each(truth)) for each in predicts], START, spreads={"matmul_share": 0.15, "host_s": 0.6})


@pytest.fixture
def path(fitted, tmp_path):
    path = tmp_path / "constants.toml"
    path.write_text(fitted_to_toml(fitted, H100, rows="measured.csv", date="2026-11-30"), encoding="utf-8")
    return path


@pytest.fixture
def placed(tmp_path):
    """Three rows whose questions are told, and their file."""
    predicts = [predict_of(1.0, 100), predict_of(2.0, 50), predict_of(5.0, 1000)]
    places = [(float(i),) * NUM_FEATURES for i in range(3)]
    rows = [(each, 1.1 * each(START)) for each in predicts]
    fitted = fit(rows, START, spreads={"matmul_share": 0.15, "host_s": 0.6}, places=places)
    path = tmp_path / "placed.toml"
    path.write_text(fitted_to_toml(fitted, H100, rows="measured.csv", date="2026-11-30"), encoding="utf-8")
    return fitted, path


def test_what_rows_left_over_reads_back(placed):
    fitted, path = placed
    assert read_fitted(path, H100)[1] == fitted


def test_a_rest_of_another_size_is_refused(placed):
    _, path = placed
    path.write_text(path.read_text(encoding="utf-8").replace("pull = [", "pull = [1.0, "), encoding="utf-8")
    with pytest.raises(PlanError, match="different sizes"):
        read_fitted(path, H100)


def test_what_is_written_reads_back(fitted, path):
    """Constants and what they are known to, to the last digit."""
    constants, read = read_fitted(path, H100)
    assert constants == fitted.constants
    assert read == fitted


def test_an_interval_is_the_same_after_reading(fitted, path):
    """A prediction of a later session has the interval of the session that fitted."""
    _, read = read_fitted(path, H100)
    predict = predict_of(3.0, 10)
    assert read.interval(predict) == fitted.interval(predict)


def test_constants_by_hand_have_no_interval(tmp_path):
    """A file without [fit] is constants and nothing more."""
    path = tmp_path / "mine.toml"
    path.write_text("[h100-sxm]\nmatmul_share = 0.7\n", encoding="utf-8")
    constants, read = read_fitted(path, H100)
    assert (constants.matmul_share, read) == (0.7, None)


def test_constants_of_another_chip_are_refused(path):
    """What was measured on an H100 says nothing of an A100."""
    with pytest.raises(PlanError, match="none of a100"):
        read_fitted(path, get("a100-80gb"))


@pytest.mark.parametrize(
    ("text", "message"),
    [("matmul_share", "is no TOML"), ('[h100-sxm]\n[fit]\nnames = ["host_s"]\ncovariance = []\n', "damaged")],
)
def test_a_damaged_file_is_refused(tmp_path, text, message):
    """What cannot be read says so and how to make it anew."""
    path = tmp_path / "constants.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(PlanError, match=message):
        read_fitted(path, H100)


def test_a_fitted_constant_lies_about_its_middle(fitted):
    """The 90 % range has the fitted value in its geometric middle."""
    low, high = constant_range(fitted, "matmul_share")
    assert low < fitted.constants.matmul_share < high
    assert (low * high) ** 0.5 == pytest.approx(fitted.constants.matmul_share)
