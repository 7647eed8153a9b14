"""Revisions of the schema: one after the other, and what this release says of each."""

from baton.postgres.revisions import BASE, USAGE, newest, problem_of, revisions, upgrade_sql


def test_they_follow_each_other() -> None:
    assert list(revisions()) == [f"{number:04}" for number in range(1, len(revisions()) + 1)]
    for revision in (BASE, *revisions()):
        sql = upgrade_sql(revision)  # alembic finds a way from each
        before = revision == BASE or revision < USAGE
        assert ("alter table usage_records" in sql.lower()) == before
        assert ("create table conversations" in sql.lower()) == (before or revision == USAGE)
        assert "begin;" not in sql.lower()  # the transaction is the caller's


def test_each_that_is_not_the_newest_is_a_problem_with_its_remedy() -> None:
    assert problem_of(newest()) == ""
    assert "run `baton db upgrade`" in problem_of(BASE)
    for older in revisions()[:-1]:
        assert "run `baton db upgrade`" in problem_of(older)
    newer = problem_of("9999")
    assert "9999" in newer and newest() in newer and "db upgrade" not in newer
