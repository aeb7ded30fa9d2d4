-- The mean winning price of each category.
SELECT category, sum(price)::DOUBLE / count(*) FROM winning GROUP BY ALL;
-- What the job wrote.
SELECT row[1]::BIGINT, row[2] FROM read_json('{results}', format = 'newline_delimited', columns = {kind: 'VARCHAR', row: 'DOUBLE[]'})
GROUP BY row HAVING sum(adds(kind)) > 0;
