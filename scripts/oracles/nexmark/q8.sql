-- Who registers and sells in the same ten seconds.
SELECT DISTINCT p.id, p.name, p.date_time // 10000 * 10000
FROM persons AS p JOIN auctions AS a ON a.seller = p.id AND a.date_time // 10000 = p.date_time // 10000;
-- What the job wrote.
SELECT * FROM read_json('{results}', format = 'newline_delimited', columns = {id: 'BIGINT', name: 'VARCHAR', window_start: 'BIGINT'});
