"""The course's labs: a student's edition of each, and a marker for one notebook or a whole class.

Read `lab` first. `edition` makes what a student gets; `runner` runs one notebook's answers and our
checks in a process of its own; `marker` watches over that process; `grade` marks a folder.
"""
