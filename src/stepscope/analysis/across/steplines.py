"""Lines of the server's log that say how long each step of the engine took."""

from stepscope.findings import Finding
from stepscope.run.run import Launch, Run

#: Source: vLLM 0.14 to 0.33. Its logger of statistics, which writes these lines, is off
#: in a server of several API server processes; data parallelism starts one a rank.
FLAG = "--enable-logging-iteration-details"


def asked_in_vain(launch: Launch) -> bool:
    """Whether a server was asked for a line a step and wrote none while it served."""
    return (
        launch.ready
        and launch.log is not None
        and FLAG in launch.command
        and not logged_steps(launch)
    )


def logged_steps(launch: Launch) -> bool:
    """Whether the log holds lines of single steps."""
    return launch.log is not None and any(
        event.kind == "iteration" for event in launch.log.events
    )


def step_line_findings(run: Run) -> list[Finding]:
    """Name the launches that served a cell and logged none of the steps asked for."""
    served = {cell.launch for cell in run.cells if cell.requests}
    return [
        Finding(
            code="step-lines-missing",
            severity="warning",
            message=f"{launch.name} was asked to log every step of its engine, and"
            " logged none",
            hint="vLLM logs none with several API servers, and data parallelism starts"
            " several: add --api-server-count 1.",
            launch=launch.name,
        )
        for launch in run.launches
        if launch.name in served and asked_in_vain(launch)
    ]
