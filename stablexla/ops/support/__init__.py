"""Checks that operations share: attributes and rules that several families of operations check alike."""
