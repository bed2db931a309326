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


# ---- doccano ----------------------------------------------------------------------------------------------------

DOCCANO = [
    {"id": 11, "text": "Good film.", "label": ["good"], "Comments": []},
    {"id": 12, "text": "Bad film.", "label": ["bad"], "Comments": []},
    {"id": 13, "text": "A film.", "label": [], "Comments": []},
]
DOCCANO_INTENTS = [
    {"id": 1, "text": "Fly to Rome", "entities": [[7, 11, "CITY"]], "cats": ["flight"]},
    {"id": 2, "text": "Rain?", "entities": [], "cats": ["weather"]},
]
DOCCANO_OLD = [
    {
        "id": 1,
        "text": "Good film.",
        "meta": {},
        "annotation_approver": None,
        "annotations": [{"label": 3, "user": 1}, {"label": 4, "user": 2}],
    },
    {"id": 2, "text": "Bad film.", "meta": {}, "annotation_approver": None, "annotations": [{"label": 4, "user": 1}]},
]


# ---- Zooniverse -------------------------------------------------------------------------------------------------


def classified(user, subject, *answers, workflow="3130", seconds=16):
    """Return a row of an export; answers are pairs of a task and a value."""
    tasks = [{"task": task, "task_label": f"What about {task}?", "value": value} for task, value in answers]
    meta = {"started_at": "2026-03-01T10:00:00.000Z", "finished_at": f"2026-03-01T10:00:{seconds:02}.500Z"}
    when = f"2026-03-01 10:00:{seconds:02} UTC"
    data = {str(subject): {"retired": None, "Filename": f"{subject}.jpg"}}
    cells = [
        "7",
        user,
        "",
        "c1",
        workflow,
        "Palms",
        "1.1",
        when,
        "",
        "",
        *map(json.dumps, (meta, tasks, data)),
        subject,
    ]
    return ",".join('"' + str(cell).replace('"', '""') + '"' for cell in cells)


def zooniverse(*rows):
    head = "classification_id,user_name,user_id,user_ip,workflow_id,workflow_name,workflow_version,created_at"
    return "\n".join([f"{head},gold_standard,expert,metadata,annotations,subject_data,subject_ids", *rows]) + "\n"


CIRCLE = [{"tool": 0, "x": 3.5, "y": 2.0, "r": 9, "tool_label": "Crown", "details": []}]
ZOONIVERSE = zooniverse(
    classified("ann", 51, ("T0", "Yes"), ("T1", CIRCLE)),
    classified("not-logged-in-c19", 51, ("T0", "No"), seconds=20),
    classified("ann", 52, ("T0", None)),
)


# ---- Labelbox ---------------------------------------------------------------------------------------------------


def labelbox(key, *labels):
    row = {"id": f"row-{key}", "global_key": key, "row_data": f"https://x.org/{key}", "details": {"created_by": "x"}}
    return {"data_row": row, "media_attributes": {}, "projects": {"p1": {"name": "animals", "labels": list(labels)}}}


def box_label(user, *classifications, skipped=False, objects=()):
    return {
        "label_kind": "Default",
        "version": "1.0.0",
        "id": "l1",
        "label_details": {"created_at": "2026-03-01T10:00:00.000+00:00", "created_by": user, "reviews": []},
        "performance_details": {"seconds_to_create": 12, "skipped": skipped},
        "annotations": {"objects": list(objects), "classifications": list(classifications), "relationships": []},
    }


def radio(question, name, *more):
    chosen = {"feature_id": "f", "name": name, "value": name.lower(), "classifications": list(more)}
    return {"feature_id": "q", "name": question, "value": question.lower(), "radio_answer": chosen}


NOTE = {"name": "Note", "value": "note", "text_answer": {"content": "It is dark."}}
DOG = radio("Animal", "Dog")
LABELBOX = [
    labelbox(
        "1.png", box_label("ann@x.org", radio("Animal", "Cat"), NOTE), box_label("bob@x.org", radio("Animal", "Dog"))
    ),
    labelbox("2.png", box_label("ann@x.org", radio("Animal", "Cat")), box_label("bob@x.org", skipped=True)),
    labelbox("3.png"),
]


# ---- Langfuse and Phoenix ---------------------------------------------------------------------------------------


def score(trace, name, value, author=None, **more):
    source = "EVAL" if author is None else "ANNOTATION"
    when = {"timestamp": "2026-03-01T10:00:00.000Z", "createdAt": "2026-03-01T10:00:01.000Z"}
    text = isinstance(value, str)
    found = {"value": 0 if text else value, "dataType": "CATEGORICAL" if text else "NUMERIC", **when}
    found |= {"stringValue": value} if text else {}
    return {"id": "s", "traceId": trace, "name": name, "source": source, "authorUserId": author, **found, **more}


LANGFUSE = [
    score("t1", "tone", "kind", "ann"),
    score("t1", "tone", "rude", "bob"),
    score("t2", "tone", "kind"),
]


def span_note(span, name, label, user=None, kind="HUMAN", **more):
    result = {"label": label, "score": None, "explanation": "?"}
    found = {"id": "n", "span_id": span, "name": name, "annotator_kind": kind, "user_id": user, "identifier": ""}
    return {**found, "result": result, "created_at": "2026-03-01T10:00:00+00:00", "metadata": {}, **more}


PHOENIX = [
    span_note("67f6", "correctness", "correct", "ann"),
    span_note("67f6", "correctness", "incorrect", kind="LLM"),
    span_note("67f7", "correctness", "correct", identifier="judge-2", kind="LLM"),
]


# ---- boxes and spans --------------------------------------------------------------------------------------------

BOXES = """\
image,annotator,label,x,y,width,height
1.png,ann,cat,0,0,10,10
1.png,bob,cat,1,0,10,10
1.png,bob,dog,50.5,50,5,5
2.png,ann,,,,,
"""
SPANS = [{"id": 1, "text": "Fly to Rome", "label": [[7, 11, "CITY"]]}, {"id": 2, "text": "Rain?", "label": []}]


def studio_region(kind, label, **place):
    return {"from_name": "a", "to_name": "b", "type": kind, "value": {**place, kind: [label]}}


BOX = studio_region("rectanglelabels", "cat", x=10.0, y=20.0, width=30.0, height=40.0, rotation=0)
STUDIO_REGIONS = [
    {
        "id": 1,
        "data": {"image": "/data/upload/1.png"},
        "annotations": [
            {"id": 1, "completed_by": 5, "was_cancelled": False, "result": [BOX]},
            {"id": 2, "completed_by": {"email": "bob@x.org"}, "was_cancelled": False, "result": []},
            {"id": 3, "completed_by": 7, "was_cancelled": True, "result": [BOX]},
        ],
    }
]
COCO = {
    "images": [{"id": 1, "file_name": "1.png"}, {"id": 2, "file_name": "2.png"}],
    "annotations": [{"id": 1, "image_id": 1, "category_id": 3, "bbox": [0, 0, 10, 20], "area": 200}],
    "categories": [{"id": 3, "name": "cat"}],
}
