-- Bids of each bidder and session, with a gap of ten seconds.
SELECT bidder, min(date_time), max(date_time) + 10000, count(*) FROM (
  SELECT *, sum(begins) OVER (PARTITION BY bidder ORDER BY date_time ROWS UNBOUNDED PRECEDING) AS session FROM (
    SELECT bidder, date_time,
      coalesce((date_time - lag(date_time) OVER (PARTITION BY bidder ORDER BY date_time) > 10000)::INT, 1) AS begins
    FROM bids))
GROUP BY bidder, session;
-- What the job wrote.
SELECT key, "window"."start", "window"."end", value
FROM read_json('{results}', format = 'newline_delimited', columns = {key: 'BIGINT', "window": 'STRUCT("start" BIGINT, "end" BIGINT)', value: 'BIGINT'});
