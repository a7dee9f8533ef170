"""The window on the real service; its tests run in the process that runs those of the service."""

from __future__ import annotations

from pytestqt.qtbot import QtBot

from gui.session.lifecycle import LifeCycle
from gui.session.processes.service import ServiceStart
from service.messages.load import USUAL_PROMPTS
from tests.window.conftest import MakeBatchscope
from tests.window.test_workloads import choose


def test_that_all_three_run_one_after_the_other_in_one_window(qtbot: QtBot, make_batchscope: MakeBatchscope) -> None:
    batchscope = make_batchscope(ServiceStart())
    window, session = batchscope.window, batchscope.composition.session
    for name, unit, answer in (("adder", "numbers", "1"), ("house-price", "houses", "203637")):
        choose(batchscope, name)
        window.toolbar.take_step()
        qtbot.waitUntil(lambda: session.state is not LifeCycle.STARTING)
        assert session.state is LifeCycle.RUNNING, window.log.text()
        window.prompts.set_prompts(window.prompts.prompts[:1])
        window.prompts.set_copies(1)
        window.prompts.fire()
        qtbot.waitUntil(lambda a=answer: any(row.text.startswith(a) for row in window.requests.model.rows()))
        qtbot.waitUntil(lambda u=unit: window.figures.figure("tokens_per_s").accessibleName() == f"{u}/s")
        window.toolbar.take_step()
        qtbot.waitUntil(lambda: session.state is LifeCycle.NOT_STARTED)
    choose(batchscope, "SmolLM2-135M-Instruct")
    assert window.prompts.prompts == USUAL_PROMPTS
