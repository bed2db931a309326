"""Small exports of labelling tools."""

import json


def lines(records) -> str:
    return "\n".join(map(json.dumps, records))


def response(number, values, users, status, **more):
    lists = {"animal.responses": values, "animal.responses.users": users, "animal.responses.status": status}
    return {"id": f"r{number}", "status": "pending", "_server_id": None, "picture": None, **lists, **more}


ARGILLA = [
    response(1, ["cat", "dog", "owl"], ["u1", "u2", "u3"], ["submitted", "submitted", "draft"]),
    response(2, ["cat", None], ["u1", "u2"], ["submitted", "discarded"]),
    response(3, None, None, None),
]


def answer(image, who, answer="accept", **more):
    return {"image": image, "_view_id": "choice", "answer": answer, "_annotator_id": who, "_session_id": who, **more}


JUDGES = [
    {"question_id": 1, "model_a": "x", "model_b": "y", "judge": ["gpt", "v2"], "winner": "model_a", "turn": 1},
    {"question_id": 1, "model_a": "y", "model_b": "x", "judge": "llama", "winner": "So it is [[B]]", "turn": 1},
    {"question_id": 2, "model_a": "x", "model_b": "y", "judge": "llama", "winner": "tie", "turn": 1},
]
TOLOKA = """\
INPUT:image\tINPUT:page\tOUTPUT:result\tGOLDEN:result\tHINT:text\tASSIGNMENT:link\tASSIGNMENT:worker_id\tASSIGNMENT:status
https://x.org/1.jpg\thttps://x.org/1\tcat\t\t\thttps://toloka/1\tw1\tAPPROVED
https://x.org/2.jpg\thttps://x.org/2\tdog\tcat\t\thttps://toloka/1\tw1\tAPPROVED

https://x.org/1.jpg\thttps://x.org/1\tdog\t\t\thttps://toloka/2\tw2\tSUBMITTED
https://x.org/2.jpg\thttps://x.org/2\tcat\tcat\t\thttps://toloka/3\tw3\tREJECTED
https://x.org/2.jpg\thttps://x.org/2\t\tcat\t\thttps://toloka/3\tw4\tAPPROVED
https://x.org/3.jpg\thttps://x.org/3\t\t\t\thttps://toloka/4\tw4\tSKIPPED
"""


def batch(*rows, inputs=("Input.image_url",), answers=("Answer.category.label",)) -> str:
    head = [
        "HITId",
        "AssignmentId",
        "WorkerId",
        "AssignmentStatus",
        "RejectionTime",
        *inputs,
        *answers,
        "Approve",
        "Reject",
    ]
    return "\n".join(",".join(f'"{cell}"'.replace("~", '""') for cell in line) for line in [head, *rows])


def job(images: str, assignee: str = "") -> str:
    who = f"<assignee>{f'<username>{assignee}</username><email></email>' if assignee else ''}</assignee>"
    meta = f"<job><id>1</id><owner><username>admin</username></owner>{who}</job>"
    head = '<?xml version="1.0" encoding="utf-8"?>\n<annotations>\n  <version>1.1</version>\n'
    return f"{head}<meta>{meta}<dumped>now</dumped></meta>\n{images}</annotations>\n"


def image(name: str, *tags: str, more: str = "") -> str:
    inside = "".join(f'<tag label="{tag}" source="manual"><attribute name="sure">1</attribute></tag>' for tag in tags)
    return f'<image id="0" name="{name}" width="9" height="9">{inside}{more}</image>\n'


# ---- Potato -----------------------------------------------------------------------------------------------------


def potato(number, *, text="Fine.", spent="0d 0h 1m 5s", spans=None, **answers):
    return {
        "id": f"item_{number}",
        "displayed_text": text,
        "label_annotations": answers,
        "span_annotations": spans or {},
        "behavioral_data": {"time_string": f"Time spent: {spent} "} if spent else {},
    }


POTATO = [
    potato(1, tone={"happy": "true"}, why={"text_box": "It is fine."}),
    potato(2, tone={"sad": "true"}, why={"text_box": ""}, spent="0d 1h 0m 0s"),
    potato(3, why={"text_box": "No idea."}),
]
POTATO_STATE = {
    "user_id": "bob",
    "instance_id_ordering": ["item_1", "item_2"],
    "instance_id_to_label_to_value": {
        "item_1": [[{"schema": "tone", "name": "happy"}, "true"]],
        "item_2": [[{"schema": "tone", "name": "sad"}, "3"], [{"schema": "tone", "name": "happy"}, False]],
    },
    "instance_id_to_behavioral_data": {"item_1": {"total_time_ms": 2500}},
}
