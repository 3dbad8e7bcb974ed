"""How programs and figures are shown: tables and IR, on a terminal and in HTML."""
