"""The labs of the course: the student's edition of each lab, and a marker for one notebook or for
a whole class.

Read `lab` first. `edition` makes what a student gets. `runner` executes the answers of one notebook
and our checks in a process of its own, and `marker` watches over that process. `grade` marks what
`hand_ins` finds of a class, and `gradebook` brings the points to the students that `roster` finds.
"""
