"""What connects the session to the widgets: presenter, service controller, foresight, inspector, exporter, clocks.

Arguments, choices and preferences stand here too, since they decide what is shown first; diagnostics and the entry on
the desktop, since they are about the program itself.

Invariant: no widget is defined here, and no process is started here.
"""
